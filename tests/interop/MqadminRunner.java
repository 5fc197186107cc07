import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin command lines in one JVM. Each line of the input is one: its arguments, separated by tabs, behind the seconds it
 * may take at most. Each answer is a line with a number of bytes, and the bytes: all that the command printed.
 */
public final class MqadminRunner {
    public static void main(String[] none) throws Exception {
        Field commands = MQAdminStartup.class.getDeclaredField("subCommandList");
        commands.setAccessible(true);
        PrintStream out = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            String[] args = Arrays.copyOfRange(words, 1, words.length);
            ((List<?>) commands.get(null)).clear();     // mqadmin is made for one command: some keep the client they closed
            byte[] printed = run(args, Integer.parseInt(words[0]));
            out.println(printed.length);
            out.write(printed);
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static byte[] run(String[] args, int seconds) throws InterruptedException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream errorsBefore = System.err;
        PrintStream catching = new PrintStream(bytes, true, StandardCharsets.UTF_8);
        System.setOut(catching);
        System.setErr(catching);
        Thread thread = new Thread(() -> MQAdminStartup.main(args), "mqadmin");
        thread.setDaemon(true);
        thread.setUncaughtExceptionHandler((t, error) -> error.printStackTrace(catching));
        try {
            thread.start();
            thread.join(seconds * 1000L);
            if (thread.isAlive()) {     // a command that goes on for ever is interrupted
                System.setOut(before);
                System.setErr(errorsBefore);
                byte[] printed = bytes.toByteArray();
                thread.interrupt();
                thread.join(10_000);
                return printed;
            }
            return bytes.toByteArray();
        } finally {
            System.setOut(before);
            System.setErr(errorsBefore);
        }
    }
}
