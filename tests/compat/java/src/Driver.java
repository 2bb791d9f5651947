import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * One JVM for many calls: a line of JSON in, a line of JSON out, one call at a time.
 *
 * <p>A call is {@code {"number": n, "call": name, ...arguments}}; its answer has the number and {@code "result"},
 * {@code "refused"} (Kafka's error code) and {@code "said"}, or {@code "failed"} (a stack trace).
 * The names are in {@link Clients}, {@link Operations}, {@link Members}, {@link Transactions} and {@link Tools};
 * `tests/compat/java/jvm.py` is the other end.
 */
public final class Driver {
    interface Call {
        Object on(JsonNode arguments) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Map<String, Call> calls = new HashMap<>();
        new Clients().register(calls);
        new Operations().register(calls);
        new Members().register(calls);
        new Transactions().register(calls);
        calls.put("tool", Tools::run);
        calls.put("version", asked -> AppInfoParser.getVersion());
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(JSON.writeValueAsString(answer(calls, JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> answer(Map<String, Call> calls, JsonNode asked) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("number", asked.get("number").asInt());
        try {
            answer.put("result", calls.get(asked.get("call").asText()).on(asked));
        } catch (Exception failure) {
            Throwable cause = failure;
            while (cause instanceof ExecutionException || cause instanceof CompletionException) {
                cause = cause.getCause();
            }
            if (cause instanceof OffsetOutOfRangeException) {
                cause = Errors.OFFSET_OUT_OF_RANGE.exception(cause.getMessage());
            }
            if (cause instanceof ApiException && Errors.forException(cause) != Errors.UNKNOWN_SERVER_ERROR) {
                answer.put("refused", Errors.forException(cause).code());
                answer.put("said", String.valueOf(cause.getMessage()));
            } else {
                answer.put("failed", trace(cause));
            }
        }
        return answer;
    }

    static String trace(Throwable failure) {
        var text = new StringWriter();
        failure.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
