// Command write-image writes the driver's container image into a file. tools/kubernetes image calls it.
package main

import (
	"fmt"
	"os"

	"steadyvm/k8s/internal/image"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: write-image FILE NAME:TAG PROGRAM...")
		os.Exit(2)
	}
	own, err := image.Of(os.Args[3:]...)
	if err == nil {
		err = image.Write(own, os.Args[2], os.Args[1])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "write-image: %v\n", err)
		os.Exit(3)
	}
}
