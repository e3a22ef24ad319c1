// Command origin is a provider for clients to call through the proxy: HTTP/1.1 and HTTP/2, in the clear and with TLS, and a
// DNS server that has one address for every name. It says "ready" when all of it listens.
package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	address, authority := net.ParseIP(os.Args[1]).To4(), os.Args[2]
	dns, err := net.ListenPacket("udp4", net.JoinHostPort(os.Args[1], "53"))
	check(err)
	go resolve(dns, address)

	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/down", down)
	mux.HandleFunc("/redirect", redirect)
	mux.HandleFunc("/events", events)
	mux.HandleFunc("/ws", webSocket)
	plain, err := net.Listen("tcp4", net.JoinHostPort(os.Args[1], "80"))
	check(err)
	secure, err := net.Listen("tcp4", net.JoinHostPort(os.Args[1], "443"))
	check(err)
	// One server for both would not set up HTTP/2.
	inTheClear := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	withTLS := &http.Server{Handler: mux, TLSConfig: certificate(authority), ReadHeaderTimeout: time.Minute}
	go func() { check(inTheClear.Serve(plain)) }()
	go func() { check(withTLS.ServeTLS(secure, "", "")) }()
	fmt.Println("ready")
	// Ends with whoever started it.
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// What was asked, as it arrived.
func echo(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	length, err := io.Copy(hash, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	headers := map[string]string{}
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "path": r.URL.RequestURI(), "proto": r.Proto, "host": r.Host, "headers": headers,
		"connection": r.RemoteAddr, "length": length, "sha256": hex.EncodeToString(hash.Sum(nil)),
	})
}

func down(w http.ResponseWriter, r *http.Request) {
	length, err := strconv.Atoi(r.URL.Query().Get("bytes"))
	if err != nil || length < 0 || length > 1<<28 {
		http.Error(w, "bytes", http.StatusBadRequest)
		return
	}
	body := make([]byte, length)
	for at := range body {
		body[at] = byte(at % 251)
	}
	sum := sha256.Sum256(body)
	w.Header().Set("Content-Length", strconv.Itoa(length))
	w.Header().Set("X-Sha256", hex.EncodeToString(sum[:]))
	_, _ = w.Write(body)
}

func redirect(w http.ResponseWriter, r *http.Request) {
	status, err := strconv.Atoi(r.URL.Query().Get("status"))
	if err != nil {
		status = http.StatusFound
	}
	w.Header().Set("Location", r.URL.Query().Get("to"))
	w.WriteHeader(status)
}

// Three events with time between them: whoever holds them back shows them all at once.
func events(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for event := 1; event <= 3; event++ {
		_, _ = fmt.Fprintf(w, "data: %d\n\n", event)
		w.(http.Flusher).Flush()
		time.Sleep(200 * time.Millisecond)
	}
}

// RFC 6455: every text message comes back; a close is answered.
func webSocket(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	connection, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	_, _ = fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	for {
		opcode, message, err := frame(buffered.Reader)
		if err != nil {
			return
		}
		header := []byte{0x80 | opcode, byte(len(message))}
		if len(message) >= 126 {
			header = []byte{0x80 | opcode, 126, byte(len(message) >> 8), byte(len(message))}
		}
		_, _ = connection.Write(append(header, message...))
		if opcode == 8 {
			return
		}
	}
}

func frame(r *bufio.Reader) (byte, []byte, error) {
	var header [2]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	length := int(header[1] & 0x7f)
	if length == 126 {
		var long [2]byte
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return 0, nil, err
		}
		length = int(binary.BigEndian.Uint16(long[:]))
	}
	if length == 127 || header[1]&0x80 == 0 {
		return 0, nil, fmt.Errorf("too long, or not masked")
	}
	var mask [4]byte
	if _, err := io.ReadFull(r, mask[:]); err != nil {
		return 0, nil, err
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(r, message); err != nil {
		return 0, nil, err
	}
	for at := range message {
		message[at] ^= mask[at%4]
	}
	return header[0] & 0xf, message, nil
}

// Every name has the one address; there is no other record.
func resolve(socket net.PacketConn, address net.IP) {
	datagram := make([]byte, 1500)
	for {
		length, peer, err := socket.ReadFrom(datagram)
		if err != nil {
			return
		}
		end := 12
		for end < length && datagram[end] != 0 {
			end += int(datagram[end]) + 1
		}
		if end += 5; end > length {
			continue
		}
		isA := datagram[end-3] == 1
		answer := append([]byte{datagram[0], datagram[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, datagram[12:end]...)
		if isA {
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
			answer = append(answer, address...)
		}
		_, _ = socket.WriteTo(answer, peer)
	}
}

// A certificate for every name under example.com, by an authority that is written for clients to trust.
func certificate(path string) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	issuer := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	issued, err := x509.CreateCertificate(rand.Reader, issuer, issuer, &key.PublicKey, key)
	check(err)
	check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issued}), 0o644))
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	leaf, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "provider"}, DNSNames: []string{"*.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, issuer, &own.PublicKey, key)
	check(err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf}, PrivateKey: own}}}
}
