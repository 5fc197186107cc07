import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Name server, broker, topic, group: sends ten messages, pulls them with client 5's LitePullConsumer, and asks for topic and group. */
public class LitePull5 {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("p5");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        TreeSet<String> wanted = new TreeSet<>();
        for (int i = 0; i < 10; i++) {
            producer.send(new Message(args[2], "red", ("m" + i).getBytes()));
            wanted.add("m" + i);
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(args[2], "red");
        consumer.start();
        List<String> got = new ArrayList<>();
        long until = System.nanoTime() + 30_000_000_000L;
        while (got.size() < 10 && System.nanoTime() < until) {
            for (MessageExt one : consumer.poll(1000)) got.add(new String(one.getBody()));
        }
        System.out.println("GOT " + (new TreeSet<>(got).equals(wanted) && got.size() == 10));
        producer.send(new Message(args[2], "red", "later".getBytes()));
        List<MessageExt> later = new ArrayList<>();
        while (later.isEmpty() && System.nanoTime() < until) later.addAll(consumer.poll(1000));
        System.out.println("HELD " + new String(later.get(0).getBody()));
        consumer.commit();
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args[0]);
        admin.setInstanceName("admin5");
        admin.start();
        System.out.println("TOPIC " + admin.examineTopicConfig(args[1], args[2]));
        SubscriptionGroupConfig group = admin.examineSubscriptionGroupConfig(args[1], args[3]);
        System.out.println("GROUP " + group.getGroupName() + " " + group.getRetryMaxTimes() + " " + group.getConsumeTimeoutMinute());
        try {
            System.out.println("MISSING " + admin.examineTopicConfig(args[1], "Nowhere"));
        } catch (Exception error) {
            System.out.println("MISSING " + error.getMessage());
        }
        consumer.shutdown();
        producer.shutdown();
        admin.shutdown();
        System.out.println("END");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
