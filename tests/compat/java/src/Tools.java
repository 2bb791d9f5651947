import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Kafka's command line tools, run as a shell would: arguments and stdin in; exit status, stdout and stderr out. */
final class Tools {
    /** Ends a tool as its exit would. Some tools catch it, tell of it and exit again: it says nothing. */
    private static final class Exited extends RuntimeException {
        Exited() {
            super("", null, false, false);
        }

        @Override
        public String toString() {
            return "";
        }
    }

    private Tools() {}

    static Object run(JsonNode asked) throws Exception {
        String[] arguments = Driver.JSON.convertValue(asked.get("arguments"), String[].class);
        var output = new ByteArrayOutputStream();
        var errors = new ByteArrayOutputStream();
        PrintStream usualOutput = System.out;
        PrintStream usualErrors = System.err;
        InputStream usualInput = System.in;
        var exits = new ArrayList<Integer>();
        Exit.setExitProcedure((status, message) -> {
            exits.add(status);
            throw new Exited();
        });
        var hooks = new ArrayList<Runnable>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        try {
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(asked.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            int end = end(asked.get("main").asText(), arguments);
            int status = exits.isEmpty() ? end : exits.get(0);
            hooks.forEach(Runnable::run);
            return Map.of("status", status, "output", output.toString(StandardCharsets.UTF_8),
                "errors", errors.toString(StandardCharsets.UTF_8));
        } finally {
            System.setOut(usualOutput);
            System.setErr(usualErrors);
            System.setIn(usualInput);
            Exit.resetExitProcedure();
            Exit.resetShutdownHookAdder();
        }
    }

    private static int end(String main, String[] arguments) throws Exception {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Exited)) {
                failure.getCause().printStackTrace();
            }
            return 1;
        }
    }
}
