// A cluster of kfake, franz-go's brokers for tests, on loopback: a second implementation of the brokers.
//
// Prints its addresses on one line. Ends with its standard input, so that it does not outlive the tests.
// The argument is the release of Kafka whose versions of requests it offers, 3.9 or 4.1: the protocol of transactions
// before or after KIP-890; or "newest", all that it has.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

func main() {
	options := []kfake.Opt{kfake.NumBrokers(3)}
	if os.Args[1] != "newest" {
		release := kversion.FromString(os.Args[1])
		if release == nil {
			log.Fatalf("there is no release %s", os.Args[1])
		}
		options = append(options, kfake.MaxVersions(release))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	_, _ = io.Copy(io.Discard, os.Stdin)
}
