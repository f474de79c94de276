// Client.java - the first example of the server with Java's java.net.http: Client URL, then a line PATH BODY a request.
//
// Prints a line for each reply: the status, the Content-Type and the body.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;

public class Client {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

        for (String line; (line = requests.readLine()) != null; ) {
            String[] parts = line.split(" ", 2);
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0] + parts[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(parts[1])).build();
            HttpResponse<String> reply = client.send(request, HttpResponse.BodyHandlers.ofString());

            out.println(reply.statusCode() + " " + reply.headers().firstValue("Content-Type").orElse("") + " " + reply.body());
        }
    }
}
