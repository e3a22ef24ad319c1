// Command client calls through the proxy by net/http.
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

var (
	proxy, anonymous, base = os.Getenv("PROXY"), os.Getenv("PROXY_ANONYMOUS"), os.Getenv("BASE")
	host, other, denied    = os.Getenv("HOST"), os.Getenv("OTHER"), os.Getenv("DENIED")
	governed               = http.Header{"Authorization": {"Bearer " + os.Getenv("GRANT")}}
)

func main() {
	size, err := strconv.Atoi(os.Getenv("SIZE"))
	must(err)
	body := make([]byte, size)
	_, err = rand.Read(body)
	must(err)
	client, bare := through(proxy), &http.Client{Timeout: time.Minute}

	same("http", ask(client, "GET", "http://"+host+"/echo?a=b", nil, nil)["path"], "/echo?a=b")
	same("https", ask(client, "GET", "https://"+host+"/echo", nil, nil)["host"], host)
	headers := ask(bare, "GET", base+"/echo", governed, nil)["headers"].(map[string]any)
	same("base-url", headers["authorization"], "Bearer "+os.Getenv("KEY"))
	for _, scheme := range []string{"http", "https"} {
		came := map[any]bool{}
		for range [3]int{} {
			came[ask(client, "GET", scheme+"://"+host+"/echo", nil, nil)["connection"]] = true
		}
		same("keep-alive-"+scheme, len(came), 1)
		same("upload-"+scheme, ask(client, "PUT", scheme+"://"+host+"/echo", nil, body)["sha256"], sum(body))
		answer := do(client, "GET", scheme+"://"+host+"/down?bytes="+strconv.Itoa(size), nil, nil)
		all, err := io.ReadAll(answer.Body)
		must(err)
		same("download-"+scheme, sum(all), answer.Header.Get("X-Sha256"))
		to := url.QueryEscape(scheme + "://" + other + "/echo")
		same("redirect-"+scheme, ask(client, "GET", scheme+"://"+host+"/redirect?to="+to, nil, nil)["host"], other)
	}
	same("upload-base-url", ask(bare, "PUT", base+"/echo", governed, body)["sha256"], sum(body))
	follow := governed.Clone()
	follow.Set("Tidegate-Follow-Redirects", "3")
	same("redirect-base-url", ask(bare, "GET", base+"/redirect?to=/echo&status=307", follow, nil)["path"], "/echo")

	lines := bufio.NewScanner(do(client, "GET", "https://"+host+"/events", nil, nil).Body)
	lines.Scan()
	first := time.Now()
	for lines.Scan() {
	}
	same("events", time.Since(first) > 300*time.Millisecond, true)

	same("refused", failure(client, "https://"+denied+"/", "Forbidden"), true)
	same("unknown", failure(through(anonymous), "https://"+host+"/", "Proxy Authentication Required"), true)
	same("unknown-base-url", do(bare, "GET", base+"/echo", nil, nil).StatusCode, 401)

	must(os.Setenv("HTTPS_PROXY", proxy))
	environment := through(proxy)
	environment.Transport.(*http.Transport).Proxy = http.ProxyFromEnvironment
	same("environment", ask(environment, "GET", "https://"+host+"/echo", nil, nil)["host"], host)
}

func through(proxy string) *http.Client {
	to, err := url.Parse(proxy)
	must(err)
	pem, err := os.ReadFile(os.Getenv("CA"))
	must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{Proxy: http.ProxyURL(to), TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func do(client *http.Client, method, url string, headers http.Header, body []byte) *http.Response {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	must(err)
	request.Header = headers.Clone()
	if headers == nil {
		request.Header = http.Header{}
	}
	answer, err := client.Do(request)
	must(err)
	return answer
}

func ask(client *http.Client, method, url string, headers http.Header, body []byte) map[string]any {
	answer := do(client, method, url, headers, body)
	defer answer.Body.Close()
	var said map[string]any
	must(json.NewDecoder(answer.Body).Decode(&said))
	// Read to its end, a connection is there for the next request.
	_, err := io.Copy(io.Discard, answer.Body)
	must(err)
	return said
}

func failure(client *http.Client, url, says string) bool {
	_, err := client.Get(url)
	return err != nil && strings.Contains(err.Error(), says)
}

func sum(bytes []byte) string {
	hash := sha256.Sum256(bytes)
	return hex.EncodeToString(hash[:])
}

func same(name string, have, want any) {
	if have != want {
		log.Fatalf("%s: %v is not %v", name, have, want)
	}
	fmt.Println("ok", name)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
