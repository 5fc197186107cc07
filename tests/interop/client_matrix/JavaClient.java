import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The Java client, which executes commands from lines of input. A line has a command and its arguments, as hex of UTF-8,
 * separated by blanks. Each command is answered with lines of the same form, the last of which begins with "ok" or "failed".
 */
public class JavaClient {
    static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    static final Map<String, DefaultMQPushConsumer> MEMBERS = new HashMap<>();
    static final Map<String, BlockingQueue<MessageExt>> SEEN = new HashMap<>();
    static String nameServer;
    static DefaultMQProducer producer;

    public static void main(String[] args) throws Exception {
        nameServer = args[0];
        producer = new DefaultMQProducer("java-client");
        producer.setNamesrvAddr(nameServer);
        producer.setCompressMsgBodyOverHowmuch(100_000);
        producer.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            for (int i = 1; i < words.length; i++) {
                words[i] = new String(HexFormat.of().parseHex(words[i]), StandardCharsets.ISO_8859_1);
            }
            try {
                run(words);
                OUT.println("ok");
            } catch (Exception error) {
                say("failed", error.toString());
            }
        }
        System.exit(0);
    }

    static String text(String raw) {
        return new String(raw.getBytes(StandardCharsets.ISO_8859_1), StandardCharsets.UTF_8);
    }

    static byte[] bytes(String raw) {
        return raw.getBytes(StandardCharsets.ISO_8859_1);
    }

    static void say(String what, Object... fields) {
        StringJoiner line = new StringJoiner(" ");
        line.add(what);
        for (Object field : fields) {
            byte[] raw = field instanceof byte[] ? (byte[]) field : String.valueOf(field).getBytes(StandardCharsets.UTF_8);
            line.add(HexFormat.of().formatHex(raw));
        }
        OUT.println(line);
    }

    static void run(String[] a) throws Exception {
        switch (a[0]) {
            case "send" -> sent(a.length > 9 && !a[9].isEmpty()
                ? producer.send(message(a, 1), new SelectMessageQueueByHash(), text(a[9])) : producer.send(message(a, 1)));
            case "batch" -> {
                List<Message> messages = new ArrayList<>();
                for (int i = 2; i < a.length; i++) {
                    messages.add(new Message(text(a[1]), "batch", "key" + i, bytes(a[i])));
                }
                sent(producer.send(messages));
            }
            case "compress" -> {  // the class is of 5.x
                Class<?> type = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
                Object method = type.getMethod("of", String.class).invoke(null, text(a[1]));
                DefaultMQProducer.class.getMethod("setCompressType", type).invoke(producer, method);
            }
            case "transaction" -> transaction(message(a, 2), text(a[1]));
            case "join" -> join(text(a[1]), text(a[2]), text(a[3]), text(a[4]), text(a[5]));
            case "held" -> {
                TreeSet<Integer> held = new TreeSet<>();
                for (MessageQueue queue : MEMBERS.get(text(a[1])).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
                    if (queue.getTopic().equals(text(a[2]))) {
                        held.add(queue.getQueueId());
                    }
                }
                say("held", held.toArray());
            }
            case "next" -> next(text(a[1]), Integer.parseInt(text(a[2])));
            case "leave" -> {
                MEMBERS.remove(text(a[1])).shutdown();
                SEEN.remove(text(a[1]));
            }
            default -> throw new IllegalArgumentException(a[0]);
        }
    }

    /** topic, body, tags, keys, flag, delay level, names and values of properties. */
    static Message message(String[] a, int at) {
        Message message = new Message(text(a[at]), text(a[at + 2]), text(a[at + 3]), Integer.parseInt(text(a[at + 4])), bytes(a[at + 1]), true);
        if (Integer.parseInt(text(a[at + 5])) > 0) {
            message.setDelayTimeLevel(Integer.parseInt(text(a[at + 5])));
        }
        String[] pairs = text(a[at + 6]).split("\u0000");
        for (int i = 0; i + 1 < pairs.length; i += 2) {
            message.putUserProperty(pairs[i], pairs[i + 1]);
        }
        return message;
    }

    static void sent(SendResult result) {
        say("sent", result.getMsgId(), result.getMessageQueue().getQueueId(), result.getQueueOffset(), result.getSendStatus());
    }

    static void transaction(Message message, String state) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("java-transactions-" + message.getTopic() + state);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("transactions-" + message.getTopic() + state);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message half, Object argument) {
                return LocalTransactionState.valueOf(state);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt half) {
                return LocalTransactionState.valueOf(state);
            }
        });
        producer.start();
        try {
            sent(producer.sendMessageInTransaction(message, null));
        } finally {
            producer.shutdown();
        }
    }

    static void join(String group, String topic, String expression, String strategy, String instance) throws Exception {
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(group);
        member.setNamesrvAddr(nameServer);
        member.setInstanceName(instance);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setPollNameServerInterval(200);
        member.setHeartbeatBrokerInterval(200);
        member.setAllocateMessageQueueStrategy(switch (strategy) {
            case "AVG" -> new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE" -> new AllocateMessageQueueAveragelyByCircle();
            default -> new AllocateMessageQueueConsistentHash();
        });
        if (expression.startsWith("sql:")) {
            member.subscribe(topic, MessageSelector.bySql(expression.substring(4)));
        } else {
            member.subscribe(topic, expression);
        }
        BlockingQueue<MessageExt> seen = new LinkedBlockingQueue<>();
        member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean fails = false;
            for (MessageExt message : messages) {
                fails |= message.getReconsumeTimes() == 0 && "fail-once".equals(message.getTags());
                seen.add(message);
            }
            context.setDelayLevelWhenNextConsume(1);
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        member.start();
        MEMBERS.put(group, member);
        SEEN.put(group, seen);
    }

    static void next(String group, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            MessageExt message = SEEN.get(group).poll(30, TimeUnit.SECONDS);
            if (message == null) {
                throw new IllegalStateException("message " + i + " of " + count + " did not come");
            }
            StringBuilder properties = new StringBuilder();
            message.getProperties().forEach((name, value) -> properties.append(name).append('\0').append(value).append('\0'));
            InetSocketAddress born = (InetSocketAddress) message.getBornHost();
            say("message", message.getTopic(), message.getBody(), message.getTags() == null ? "" : message.getTags(),
                message.getKeys() == null ? "" : message.getKeys(), message.getFlag(), message.getSysFlag(), message.getBornTimestamp(),
                born.getAddress().getHostAddress() + ":" + born.getPort(), message.getReconsumeTimes(), message.getQueueId(),
                message.getQueueOffset(), message.getMsgId(), properties);
        }
    }
}
