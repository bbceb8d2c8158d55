"""Authentication and encryption: from Kafka's, Java's and librdkafka's properties to TLS contexts and SASL exchanges.

security                    TLS and SASL together, as one value of the options
properties                  that value from the properties, where there are any
sasl jaas extensions        credentials of every SASL mechanism, also in Java's format
kerberos msk_iam tokens     the properties of GSSAPI, AWS MSK IAM and OAUTHBEARER
tls stores jks              truststores and keystores, also Java's, as PEM
secret                      secrets that stay out of logs
trust                       whose certificates a TLS context trusts
authentication              the TLS context and the SASL exchange of a connection
gssapi oauth                the mechanisms that kafka-python does not do for us
token_provider msk_iam_token    tokens from a function, and AWS's
"""
