// Prints, for one client library, the values that it delivers with its read-committed setting, one a line.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 8 * time.Second

func main() {
	client, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	switch client {
	case "franz-go":
		c, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		check(err)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for ctx.Err() == nil {
			c.PollFetches(ctx).EachRecord(func(r *kgo.Record) { fmt.Println(string(r.Value)) })
		}
	case "kafka-go":
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, Partition: 0,
			IsolationLevel: kafka.ReadCommitted, MaxWait: time.Second})
		for {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			m, err := r.ReadMessage(ctx)
			cancel()
			if err != nil {
				return
			}
			fmt.Printf("%q\n", m.Value)
		}
	case "sarama":
		config := sarama.NewConfig()
		config.Version = sarama.V2_8_0_0
		config.Consumer.IsolationLevel = sarama.ReadCommitted
		c, err := sarama.NewConsumer([]string{bootstrap}, config)
		check(err)
		p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
		check(err)
		for {
			select {
			case m := <-p.Messages():
				fmt.Println(string(m.Value))
			case <-time.After(patience):
				return
			}
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
