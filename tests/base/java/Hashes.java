import java.util.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
public class Hashes {
    static int abs(int n) { return n == Integer.MIN_VALUE ? 0 : Math.abs(n); }
    static String escape(String s) {
        StringBuilder out = new StringBuilder();
        for (char c : s.toCharArray()) {
            if (c == '\\' || c == '"') out.append('\\').append(c);
            else if (c < 0x20 || c > 0x7e) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.toString();
    }
    public static void main(String[] a) throws Exception {
        List<String> names = new ArrayList<>(List.of("", "a", "my-group", "orders", "billing", "spark-kafka-source-1", "console-consumer-12345",
            "connect-cluster", "payments-service", "polygenelubricants", "DESIGNING WORKHOUSES", "\0", "\uffff", "Straße", "группа", "消费者组",
            "\ud83d\ude00", "group-\ud83d\ude00-\ud83c\udf0a", "\ud800", "\udc00 lone", "x".repeat(32767), "schema-registry", "_confluent-ksql-default_"));
        Random random = new Random(26);
        while (names.size() < 200) {
            StringBuilder s = new StringBuilder();
            int n = 1 + random.nextInt(24);
            for (int i = 0; i < n; i++) {
                switch (random.nextInt(8)) {
                    case 0 -> s.appendCodePoint(0x10000 + random.nextInt(0x100000));
                    case 1 -> s.append((char) (0xa0 + random.nextInt(0xd000)));
                    default -> s.append((char) (' ' + random.nextInt(95)));
                }
            }
            names.add(s.toString());
        }
        PrintStream out = new PrintStream(new FileOutputStream(a[0]), false, StandardCharsets.US_ASCII);
        out.println("[");
        for (int i = 0; i < names.size(); i++) {
            String s = names.get(i); int h = s.hashCode();
            boolean isLong = s.length() == 32767;
            out.printf("{\"name\": %s, \"hash\": %d, \"of_50\": %d, \"of_7\": %d, \"of_1\": %d}%s%n",
                isLong ? "[\"x\", 32767]" : "\"" + escape(s) + "\"", h, abs(h) % 50, abs(h) % 7, abs(h) % 1, i + 1 < names.size() ? "," : "");
        }
        out.println("]"); out.close();
    }
}
