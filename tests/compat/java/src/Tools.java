import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Kafka's command line tools, run as a shell would: arguments and stdin in; exit status, stdout and stderr out. */
final class Tools {
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
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
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
        Exit.setShutdownHookAdder((name, runnable) -> {});
        try {
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(asked.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            int status = status(asked.get("main").asText(), arguments);
            System.out.flush();
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

    private static int status(String main, String[] arguments) throws Exception {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failure) {
            for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
                if (cause instanceof Exited exited) {
                    return exited.status;
                }
            }
            failure.getCause().printStackTrace();
            return 1;
        }
    }
}
