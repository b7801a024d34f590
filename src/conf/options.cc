#include "conf/options.h"

namespace starling {
namespace {

constexpr int64_t kProcessesMax = 4096;
constexpr int64_t kLanesMax = 1024;
constexpr int64_t kMinuteMs = 60'000;
constexpr int64_t kKib = 1024;
constexpr int64_t kGib = kKib * kKib * kKib;

WholeRule count(int64_t least, int64_t most, std::string doc) {
  return {.least = least, .most = most, .doc = std::move(doc)};
}

WholeRule bytes(int64_t least, int64_t most, std::string doc) {
  return {.least = least, .most = most, .unit = Unit::kBytes, .doc = std::move(doc)};
}

WholeRule ms(int64_t least, int64_t most, std::string doc) {
  return {.least = least, .most = most, .unit = Unit::kMilliseconds, .doc = std::move(doc)};
}

TextRule text(std::string doc) { return {.doc = std::move(doc)}; }

TextRule one_of(std::vector<std::string> words, std::string doc) {
  return {.one_of = std::move(words), .doc = std::move(doc)};
}

TextRule name(std::string doc) {
  return {.is_name = true, .required = true, .doc = std::move(doc)};
}

void add_data_rules(Schema& s, DataSection& o) {
  s.add("split", &o.split,
        "which records are for the test: {rate: {test: 0.1}}, {equals: {column: c, test: v}} or "
        "{from: {column: c, value: v}}; the others are for training");
  s.add("kind", &o.kind,
        one_of({"queue", "memory"}, "stream the files, or load them first and shuffle"));
  s.add("pipe_command", &o.pipe_command,
        text("each file's bytes go through it, unpacked where the name ends in .gz or .zst"));
  s.add("on_bad_line", &o.on_bad_line,
        one_of({"fail", "skip"}, "what a record that cannot be read does"));
  s.add("bad_lines_max", &o.bad_lines_max,
        count(0, kInfinite - 1, "with skip: more than these are an error"));
  s.add("bad_lines_path", &o.bad_lines_path, text("file that skipped records are written to"));
  s.add("stats", &o.stats,
        text("file that `starling data stats --write` wrote: mean and std of every normalise "
             "without its own"));
  s.add("negatives_rate", &o.negatives_rate,
        RealRule{.least = 0, .most = 1, .doc = "part of the samples with label 0 that is kept"});
  s.add("merge_by_id", &o.merge_by_id, "samples of one id become one");
  s.add("local_shuffle", &o.local_shuffle, "memory: each hub shuffles what it has loaded");
  s.add("global_shuffle", &o.global_shuffle, "memory: samples are exchanged between all hubs");
  s.add("slots_shuffle", &o.slots_shuffle,
        "memory: shuffle only these fields, for feature importance");
}

Schema schema_of(DataSection& o) {
  Schema s;
  s.add("format", &o.format,
        one_of({"criteo", "csv", "features", "libffm", "libsvm", "multislot"},
               "how samples are written"));
  s.add("train", &o.train, "files of samples to train on; * matches within a name");
  s.add("test", &o.test, "files of samples to measure on");
  s.add("batch_size", &o.batch_size, count(1, 1 << 20, "samples of a batch"));
  s.add("shuffle_samples", &o.shuffle_samples,
        count(0, 1'000'000'000, "samples mixed before batches are cut; 0: as they come"));
  s.add("epochs", &o.epochs, count(1, 1'000'000, "times the training samples are read"));
  s.add("reader", &o.reader, "what the format itself takes");
  add_data_rules(s, o);
  return s;
}

Schema schema_of(FieldSection& o) {
  Schema s;
  s.add("name", &o.name, name("the column or slot"));
  s.add("table", &o.table,
        TextRule{.is_name = true, .doc = "the table of its rows; empty: the field's name"});
  s.add("pooling", &o.pooling,
        one_of({"sum", "mean", "none"}, "how the rows of one sample become one vector"));
  s.add("keys_max", &o.keys_max,
        WholeRule{.least = 1,
                  .most = 1 << 20,
                  .may_be_inf = true,
                  .doc = "keys of one sample; the rest is dropped"});
  s.add("kind", &o.kind,
        one_of({"keys", "dense", "label", "weight", "show", "click", "id", "group"},
               "what the values are"));
  s.add("column", &o.column, text("name or number in the file; empty: the field's name"));
  s.add("separator", &o.separator, text("splits the column into many; empty: one"));
  s.add("transforms", &o.transforms,
        "in order: hash, log, clip (low, high), normalise (mean, std), bucketise (boundaries)");
  s.add("cross", &o.cross, "a cross of these fields, in place of a column");
  s.add("fallback", &o.fallback, text("for a missing value; empty: no key, or 0"));
  s.add("salt", &o.salt, "of the hash; 0: the hash of the field's name");
  s.add("size", &o.size, count(1, 1 << 16, "numbers per sample of a dense field"));
  return s;
}

Schema schema_of(TableSection& o) {
  Schema s;
  s.add("dim", &o.dim,
        WholeRule{.least = 1, .most = 4096, .required = true, .doc = "weights of a row"});
  s.add("storage", &o.storage, one_of({"float32", "bfloat16", "float16"}, "how weights are kept"));
  s.add("optimizer", &o.optimizer, "how a gradient changes a row");
  s.add("initializer", &o.initializer, "the first value of a row");
  s.add("admission", &o.admission, "which keys get a row");
  s.add("eviction", &o.eviction, "which rows are dropped by a shrink");
  return s;
}

Schema schema_of(DenseSection& o) {
  Schema s;
  s.add("optimizer", &o.optimizer, "how a gradient changes a dense variable");
  s.add("precision", &o.precision,
        one_of({"float32", "bfloat16"},
               "of what linear layers multiply; weights and sums stay float32"));
  s.add("home", &o.home,
        one_of({"ps", "trainer"},
               "who keeps the variables and their optimizer; trainer: a job with one trainer"));
  s.add("sharing", &o.sharing,
        one_of({"private", "hogwild"},
               "each worker has a copy, or all of a trainer one, without locks"));
  s.add("pull_every", &o.pull_every, count(1, 1 << 20, "steps between pulls from the ps"));
  s.add("merge_steps", &o.merge_steps,
        count(1, 1024, "steps whose gradients of variables are pushed as their sum"));
  return s;
}

void add_loss(Schema& s, TrainSection& o) {
  s.add("loss", &o.loss,
        one_of({"bce", "softmax", "squared"},
               "binary cross-entropy of each label, cross-entropy over all labels, squared error"));
  s.add("label_weights", &o.label_weights,
        RealRule{.least = 0, .most = 1e9, .doc = "part of each label in the loss; empty: 1 each"});
  s.add("gradient_scale", &o.gradient_scale,
        RealRule{.least = 0, .most = 1e6, .doc = "of every gradient"});
  s.add("clip_norm", &o.clip_norm,
        RealRule{.least = 0, .most = 1e9, .doc = "of a variable's gradient at most; 0: any"});
  s.add("on_nan", &o.on_nan,
        one_of({"stop", "skip"}, "what a loss or gradient that is not a number does"));
  s.add("dump", &o.dump, text("file of the predictions of each sample, by id; empty: none"));
  s.add("dump_fields", &o.dump_fields, "fields whose embeddings go to the dump, too");
}

Schema schema_of(TrainSection& o) {
  Schema s;
  s.add(
      "staleness", &o.staleness,
      WholeRule{
          .least = 0,
          .most = 1 << 20,
          .may_be_inf = true,
          .doc =
              "clocks a trainer may run ahead of the slowest; 0: synchronous, inf: asynchronous"});
  s.add("threads", &o.threads, count(1, kLanesMax, "workers of each trainer"));
  s.add("tensor_fuse", &o.tensor_fuse,
        "all that goes to one shard in one step travels in one message");
  s.add("evaluate_minutes", &o.evaluate_minutes,
        RealRule{.least = 0,
                 .most = 525'600,
                 .doc = "between evaluations on data.test; 0: after each epoch only"});
  s.add("evaluate_steps", &o.evaluate_steps,
        count(0, kInfinite - 1, "batches between evaluations on data.test; 0: off"));
  s.add("exact_auc", &o.exact_auc,
        "AUC of evaluations from every prediction, which are kept for it, not from 65536 buckets");
  s.add("window_samples", &o.window_samples,
        count(1, kInfinite - 1, "samples of a trainer whose loss and AUC are told as it trains"));
  add_loss(s, o);
  return s;
}

Schema schema_of(ClusterSection& o) {
  Schema s;
  s.add("protocol", &o.protocol, one_of({"inproc", "grpc", "grpc++"}, "how the roles talk"));
  s.add("ps", &o.ps, count(1, kProcessesMax, "parameter servers"));
  s.add("shards", &o.shards,
        count(1, kLanesMax, "shards of each ps, which are the lanes of its process"));
  s.add("hubs", &o.hubs, count(1, kProcessesMax, "hubs"));
  s.add("trainers", &o.trainers, count(1, kProcessesMax, "trainers"));
  s.add("token_file", &o.token_file,
        text("file with the secret that all processes of the cluster share"));
  return s;
}

Schema schema_of(CheckpointSection& o) {
  Schema s;
  s.add("path", &o.path, text("folder of the cuts; empty: none is written"));
  s.add("every_minutes", &o.every_minutes,
        WholeRule{.least = 0,
                  .most = 525'600,
                  .unit = Unit::kMinutes,
                  .doc = "time between cuts; 0: only at the end"});
  s.add("keep", &o.keep, count(1, 1'000'000, "newest cuts that are kept"));
  return s;
}

Schema schema_of(TlsSection& o) {
  Schema s;
  s.add("ca_file", &o.ca_file,
        text("certificates to trust; a server that has it asks its clients for one too"));
  s.add("cert_file", &o.cert_file, text("our own certificate"));
  s.add("key_file", &o.key_file, text("the key of our own certificate"));
  s.add("server_name", &o.server_name,
        text("the name expected in a server's certificate; empty: the host"));
  return s;
}

void add_net_waiting(Schema& s, NetSection& o) {
  s.add("listen", &o.listen, text("host:port; empty: loopback, a port chosen by the kernel"));
  s.add("polling", &o.polling, "lanes spin and never sleep, as many as there are cores");
  s.add("pin_cores", &o.pin_cores, "lane i stays on core first_core + i");
  s.add("first_core", &o.first_core, count(0, 4095, "core of lane 0 when pinned"));
  s.add("spin_us", &o.spin_us,
        WholeRule{.least = 0,
                  .most = 10'000,
                  .unit = Unit::kMicroseconds,
                  .doc = "how long a lane spins before it sleeps"});
  s.add("connect_timeout_ms", &o.connect_timeout_ms,
        ms(10, 10 * kMinuteMs, "for a connection to be made"));
  s.add("handshake_timeout_ms", &o.handshake_timeout_ms,
        ms(10, 10 * kMinuteMs, "for a peer to prove itself"));
  s.add("backoff_min_ms", &o.backoff_min_ms, ms(1, kMinuteMs, "wait before the first reconnect"));
  s.add("backoff_max_ms", &o.backoff_max_ms,
        ms(1, 10 * kMinuteMs, "longest wait before a reconnect"));
  s.add("ping_every_ms", &o.ping_every_ms,
        ms(10, 10 * kMinuteMs, "time between pings while calls are in flight"));
  s.add("ping_timeout_ms", &o.ping_timeout_ms,
        ms(10, 10 * kMinuteMs, "a peer that leaves a ping unanswered this long is dead"));
}

void add_net_limits(Schema& s, NetSection& o) {
  s.add("message_bytes_max", &o.message_bytes_max, bytes(4 * kKib, 2 * kGib, "of one message"));
  s.add("connection_requests_max", &o.connection_requests_max,
        count(1, 1 << 20, "in flight on one connection"));
  s.add("connection_bytes_max", &o.connection_bytes_max,
        bytes(4 * kKib, kKib * kGib, "in flight on one connection"));
  s.add("client_channels_max", &o.client_channels_max,
        count(1, 1 << 20, "targets that one client is connected to; idle ones go first"));
  s.add("client_bytes_max", &o.client_bytes_max,
        bytes(4 * kKib, 16 * kKib * kGib, "requests of one client in flight to all targets"));
  s.add("server_requests_max", &o.server_requests_max,
        count(1, 1 << 30, "in flight in one server"));
  s.add("server_bytes_max", &o.server_bytes_max,
        bytes(4 * kKib, 16 * kKib * kGib, "in flight in one server"));
  s.add("handshakes_max", &o.handshakes_max,
        count(1, 1 << 20, "connections that have not proved themselves yet"));
  s.add("pool_threads", &o.pool_threads, count(1, 1024, "threads for handlers that may block"));
  s.add("pool_queue_max", &o.pool_queue_max,
        count(1, 1 << 24, "requests that wait for such a thread"));
  s.add("unix_sockets", &o.unix_sockets, "grpc++ uses a Unix socket on one host");
  s.add("pull", &o.pull, "grpc++ pulls large replies from the peer's memory on one host");
  s.add("lend_bytes_min", &o.lend_bytes_min,
        bytes(4 * kKib, kKib * kGib, "replies of this size and above are pulled"));
}

Schema schema_of(NetSection& o) {
  Schema s;
  add_net_waiting(s, o);
  add_net_limits(s, o);
  s.add_section("tls", schema_of(o.tls));
  return s;
}

Schema schema_of(LogSection& o) {
  Schema s;
  s.add("level", &o.level,
        one_of({"debug", "info", "warning", "error", "off"}, "the least that is written"));
  s.add("file", &o.file, text("appended to; empty: standard error"));
  return s;
}

Schema schema_of(SchedulerSection& o) {
  Schema s;
  s.add("lease_ms", &o.lease_ms,
        ms(100, 60 * kMinuteMs, "a node that has not been heard of for this long is dead"));
  s.add("ledger", &o.ledger, text("file of the journal; empty: in memory, lost with the process"));
  s.add_section("net", schema_of(o.net));
  return s;
}

Schema schema_of(PsSection& o) {
  Schema s;
  s.add("memory_max", &o.memory_max,
        bytes(0, kKib * kKib * kGib, "rows are refused above it; 0: no limit"));
  s.add("staging_max", &o.staging_max,
        bytes(kKib * kKib, kKib * kGib, "staged pushes and waiting lookups of a shard"));
  s.add_section("net", schema_of(o.net));
  return s;
}

Schema schema_of(HubSection& o) {
  Schema s;
  s.add("lanes", &o.lanes, count(1, kLanesMax, "lanes of its process"));
  s.add("readers", &o.readers, count(1, kLanesMax, "threads that parse samples"));
  s.add("memory_max", &o.memory_max, bytes(0, kKib * kKib * kGib, "samples kept; 0: no limit"));
  s.add("lease_ms", &o.lease_ms,
        ms(100, 60 * kMinuteMs, "how long a trainer has for one batch before it is dealt again"));
  s.add("window", &o.window, count(1, 1024, "batches prepared on the shards and not done"));
  s.add_section("net", schema_of(o.net));
  return s;
}

Schema schema_of(TrainerSection& o) {
  Schema s;
  s.add("lanes", &o.lanes, count(1, kLanesMax, "lanes of its process"));
  s.add("prefetch", &o.prefetch, count(0, 1024, "batches asked for ahead"));
  s.add("slow_blas", &o.slow_blas,
        "train even where matrix products run far below the CPU's speed");
  s.add_section("net", schema_of(o.net));
  return s;
}

// Only described, never bound: the fields it points to are gone when it returns.
Schema model_of_field() {
  FieldSection field;
  return schema_of(field);
}

Schema model_of_table() {
  TableSection table;
  return schema_of(table);
}

}  // namespace

Schema schema_of(JobOptions& o) {
  Schema s;
  s.add("name", &o.name, TextRule{.is_name = true, .doc = "of the job"});
  s.add("seed", &o.seed, "of everything random in the job");
  s.add_section("data", schema_of(o.data));
  s.add_list("fields", "input features of a sample", model_of_field(), [&o] {
    o.fields.emplace_back();
    return schema_of(o.fields.back());
  });
  s.add_map("tables", "embedding tables by name", model_of_table(), [&o](const std::string& table) {
    o.tables.push_back({.name = table});
    return schema_of(o.tables.back());
  });
  s.add("model", &o.model, "the dense network");
  s.add_section("dense", schema_of(o.dense));
  s.add_section("train", schema_of(o.train));
  s.add_section("cluster", schema_of(o.cluster));
  s.add_section("checkpoint", schema_of(o.checkpoint));
  s.add_section("scheduler", schema_of(o.scheduler));
  s.add_section("ps", schema_of(o.ps));
  s.add_section("hub", schema_of(o.hub));
  s.add_section("trainer", schema_of(o.trainer));
  s.add_section("log", schema_of(o.log));
  return s;
}

}  // namespace starling
