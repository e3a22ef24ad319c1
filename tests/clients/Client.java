import java.io.FileInputStream;
import java.net.Authenticator;
import java.net.InetSocketAddress;
import java.net.PasswordAuthentication;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** java.net.http through the proxy. Basic authentication of tunnels is off in the JDK until a property says otherwise. */
final class Client {
    static final String HOST = env("HOST");
    static final String BASE = env("BASE");
    static final URI PROXY = URI.create(env("PROXY"));

    public static void main(String[] arguments) throws Exception {
        System.setProperty("jdk.http.auth.tunneling.disabledSchemes", "");
        int size = Integer.parseInt(env("SIZE"));
        byte[] body = new byte[size];
        new Random(1).nextBytes(body);
        HttpClient client = through(PROXY, true);
        HttpClient bare = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        String[] governed = {"Authorization", "Bearer " + env("GRANT")};

        same("http", of("path", text(client, "http://" + HOST + "/echo?a=b")), "/echo?a=b");
        same("https", of("host", text(client, "https://" + HOST + "/echo")), HOST);
        same("base-url", of("authorization", text(bare, BASE + "/echo", governed)), "Bearer " + env("KEY"));
        for (String scheme : new String[] {"http", "https"}) {
            String origin = scheme + "://" + HOST;
            Set<String> came = new HashSet<>();
            for (int i = 0; i < 3; i++) {
                came.add(of("connection", text(client, origin + "/echo")));
            }
            same("keep-alive-" + scheme, came.size(), 1);
            HttpRequest put = request(origin + "/echo").PUT(BodyPublishers.ofByteArray(body)).build();
            same("upload-" + scheme, of("sha256", client.send(put, BodyHandlers.ofString()).body()), sum(body));
            HttpRequest get = request(origin + "/down?bytes=" + size).build();
            HttpResponse<byte[]> down = client.send(get, BodyHandlers.ofByteArray());
            same("download-" + scheme, sum(down.body()), down.headers().firstValue("X-Sha256").orElseThrow());
            String to = scheme + "://" + env("OTHER") + "/echo";
            same("redirect-" + scheme, of("host", text(client, origin + "/redirect?to=" + to)), env("OTHER"));
        }
        HttpRequest put = request(BASE + "/echo", governed).PUT(BodyPublishers.ofByteArray(body)).build();
        same("upload-base-url", of("sha256", bare.send(put, BodyHandlers.ofString()).body()), sum(body));
        String[] follow = {governed[0], governed[1], "Tidegate-Follow-Redirects", "3"};
        same("redirect-base-url", of("path", text(bare, BASE + "/redirect?to=/echo&status=307", follow)), "/echo");
        webSocket(client);
        same("refused", failure(client, "https://" + env("DENIED") + "/").contains("403"), true);
        String unknown = failure(through(URI.create(env("PROXY_ANONYMOUS")), false), "https://" + HOST + "/");
        same("unknown", unknown.contains("407"), true);
        HttpResponse<String> stranger = bare.send(request(BASE + "/echo").build(), BodyHandlers.ofString());
        same("unknown-base-url", stranger.statusCode(), 401);
    }

    static HttpClient through(URI proxy, boolean proved) throws Exception {
        HttpClient.Builder builder = HttpClient.newBuilder()
                .proxy(ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort())))
                .sslContext(trust())
                .connectTimeout(Duration.ofSeconds(30))
                .followRedirects(HttpClient.Redirect.NORMAL);
        if (proved) {
            String[] proof = proxy.getUserInfo().split(":", 2);
            builder.authenticator(new Authenticator() {
                @Override
                protected PasswordAuthentication getPasswordAuthentication() {
                    boolean asks = getRequestorType() == RequestorType.PROXY;
                    return asks ? new PasswordAuthentication(proof[0], proof[1].toCharArray()) : null;
                }
            });
        }
        return builder.build();
    }

    static SSLContext trust() throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream file = new FileInputStream(env("CA"))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    static void webSocket(HttpClient client) throws Exception {
        CompletableFuture<String> said = new CompletableFuture<>();
        WebSocket socket = client.newWebSocketBuilder().buildAsync(URI.create("wss://" + HOST + "/ws"), new WebSocket.Listener() {
            @Override
            public CompletionStage<?> onText(WebSocket socket, CharSequence text, boolean last) {
                said.complete(text.toString());
                return null;
            }
        }).get(60, TimeUnit.SECONDS);
        socket.sendText("over a tunnel", true).get(60, TimeUnit.SECONDS);
        same("websocket-wss", said.get(60, TimeUnit.SECONDS), "over a tunnel");
        socket.abort();
    }

    static HttpRequest.Builder request(String url, String... headers) {
        HttpRequest.Builder builder = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(60));
        return headers.length == 0 ? builder : builder.headers(headers);
    }

    static String text(HttpClient client, String url, String... headers) throws Exception {
        return client.send(request(url, headers).build(), BodyHandlers.ofString()).body();
    }

    static String failure(HttpClient client, String url) {
        try {
            return String.valueOf(client.send(request(url).build(), BodyHandlers.ofString()).statusCode());
        } catch (Exception failure) {
            return String.valueOf(failure);
        }
    }

    /** The value of a member that is text; JSON is not in the JDK. */
    static String of(String name, String json) {
        var found = Pattern.compile('"' + name + "\":\"([^\"]*)\"").matcher(json);
        return found.find() ? found.group(1) : json;
    }

    static String sum(byte[] bytes) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    static void same(String name, Object have, Object want) {
        if (!have.equals(want)) {
            throw new AssertionError(name + ": " + have + " is not " + want);
        }
        System.out.println("ok " + name);
    }

    static String env(String name) {
        return System.getenv(name);
    }
}
