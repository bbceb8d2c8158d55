// Prints, for one client library, the values that it delivers with its read-committed setting, one a line.
Promise.withResolvers ??= () => { // Node 20 lacks it, and @platformatic/kafka needs it
  let resolve, reject
  const promise = new Promise((one, other) => { resolve = one; reject = other })
  return { promise, resolve, reject }
}
const [client, bootstrap, topic] = process.argv.slice(2)
const patience = 8000
let last = Date.now()
const got = v => { last = Date.now(); console.log(String(v)) }
setInterval(() => { if (Date.now() - last > patience) process.exit(0) }, 200)
if (client.startsWith('kafkajs')) {
  const { Kafka, logLevel } = await import('kafkajs')
  const c = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING }).consumer({ groupId: client + '-' + topic, ...(client === 'kafkajs' ? { readUncommitted: false } : {}) })
  await c.connect(); await c.subscribe({ topics: [topic], fromBeginning: true })
  await c.run({ eachMessage: async ({ message }) => got(message.value) })
} else {
  const { Consumer } = await import('@platformatic/kafka')
  const c = new Consumer({ groupId: 'plt-' + topic, clientId: 'x', bootstrapBrokers: [bootstrap], isolationLevel: 1 })
  const s = await c.consume({ topics: [topic], mode: 'earliest', autocommit: false, isolationLevel: 1, sessionTimeout: 10000, heartbeatInterval: 500 })
  for await (const m of s) got(m.value)
}
