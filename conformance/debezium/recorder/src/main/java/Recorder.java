import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;

import java.io.BufferedWriter;
import java.io.FileReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Records what a Debezium connector emits, one line a record, in the engine's
 * order, key and value as the converter wrote them. Says "snapshot done" on
 * standard output after the last snapshot row and ends at a logical message
 * with the prefix "end".
 *
 * Arguments: connector properties file, output file.
 */
public final class Recorder {
    private static final String END = "\"prefix\":\"end\"";

    private final Map<String, Long> nextOffset = new HashMap<>();
    private final CountDownLatch ended = new CountDownLatch(1);
    private final BufferedWriter out;

    private Recorder(BufferedWriter out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        Properties props = new Properties();
        try (FileReader in = new FileReader(args[0], StandardCharsets.UTF_8)) {
            props.load(in);
        }
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(args[1]))) {
            Recorder recorder = new Recorder(out);
            DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class, Json.class, Json.class)
                    .using(props)
                    .notifying(recorder::batch)
                    .using((ok, message, error) -> {
                        if (!ok) {
                            System.err.println("engine stopped: " + message);
                            System.exit(1);
                        }
                    })
                    .build();
            ExecutorService thread = Executors.newSingleThreadExecutor();
            thread.execute(engine);
            boolean done = recorder.ended.await(3, TimeUnit.MINUTES);
            engine.close();
            thread.shutdown();
            if (!done) {
                System.err.println("no end message within three minutes");
                System.exit(1);
            }
        }
        System.exit(0);
    }

    private void batch(List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
        for (ChangeEvent<String, String> event : events) {
            try {
                record(event);
            } catch (java.io.IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
    }

    private void record(ChangeEvent<String, String> event) throws java.io.IOException {
        String value = event.value();
        if (event.key() != null && event.key().contains(END)) {
            ended.countDown();
            return;
        }
        String topic = event.destination();
        long offset = nextOffset.merge(topic, 1L, Long::sum) - 1;
        StringBuilder line = new StringBuilder(512);
        line.append("{\"topic\":\"").append(topic).append("\",\"partition\":0,\"offset\":").append(offset)
                .append(",\"key\":").append(event.key()).append(",\"value\":").append(value);
        headers(event, line);
        line.append("}\n");
        out.write(line.toString());
        out.flush();
        if (value != null && value.contains("\"snapshot\":\"last\"")) {
            System.out.println("snapshot done");
        }
    }

    private static void headers(ChangeEvent<String, String> event, StringBuilder line) {
        Iterator<? extends Header<?>> headers = event.headers().iterator();
        String sep = ",\"headers\":{";
        while (headers.hasNext()) {
            Header<?> h = headers.next();
            if (h.getKey().startsWith("__debezium.context.")) {
                continue; // run ids change with every recording and carry no data
            }
            line.append(sep).append('"').append(h.getKey()).append("\":").append(h.getValue());
            sep = ",";
        }
        if (sep.equals(",")) {
            line.append('}');
        }
    }
}
