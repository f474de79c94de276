// client.go - the first example of the server with Go's net/http: client URL, then a line PATH BODY a request.
//
// Prints a line for each reply: the status, the Content-Type and the body.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func ask(url, path string, body []byte) error {
	reply, err := http.Post(url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	fmt.Printf("%d %s %s\n", reply.StatusCode, reply.Header.Get("Content-Type"), text)
	return nil
}

func main() {
	requests := bufio.NewReader(os.Stdin)
	for {
		line, err := requests.ReadString('\n')
		if err == io.EOF {
			return
		}
		path, body, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if err == nil && found {
			err = ask(os.Args[1], path, []byte(body))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
