// JobOptions: everything a job file can say, as plain structs. options.cc lists every key with its
// unit and bounds.
//
// Uses: base. Threads: any; all are values.
//
// A key is added in two places: the field here, its line in options.cc. Numbers carry their unit in
// the name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conf/schema.h"

namespace starling {

struct DataSection {
  std::string format = "criteo";
  std::vector<std::string> train;
  std::vector<std::string> test;
  int64_t batch_size = 512;     // samples
  int64_t shuffle_samples = 0;  // how many are mixed before batches are cut; 0: as they come
  int64_t epochs = 1;
  Choice reader;                           // what the format itself takes
  Choice split;                            // which records are for training, which for the test
  std::string kind = "queue";              // queue, memory
  std::string pipe_command;                // the bytes of each file go through it, unpacked
  std::string on_bad_line = "fail";        // fail, skip
  int64_t bad_lines_max = 1000;            // with skip: more are an error
  std::string bad_lines_path;              // where they are written; empty: nowhere
  std::string stats;                       // file of constants, by `starling data stats --write`
  double negatives_rate = 1;               // the part of the samples with label 0 that is kept
  bool merge_by_id = false;                // samples of one id become one
  bool local_shuffle = false;              // of memory datasets: in each hub
  bool global_shuffle = false;             // of memory datasets: over all hubs
  std::vector<std::string> slots_shuffle;  // of memory datasets: only these fields
};

struct FieldSection {
  std::string name;
  std::string table;             // of keys; empty: the field's name
  std::string pooling = "sum";   // sum, mean, none
  int64_t keys_max = kInfinite;  // of one sample; the rest is dropped
  std::string kind = "keys";     // keys, dense, label, weight, show, click, id, group
  std::string column;            // name or number in the file; empty: the field's name
  std::string separator;         // splits the column into many; empty: one
  std::vector<Choice> transforms;
  std::vector<std::string> cross;  // a cross of these fields, in place of a column
  std::string fallback;            // text for a missing value; empty: no key, or 0
  uint64_t salt = 0;               // of the hash; 0: the hash of the field's name
  int64_t size = 1;                // of dense fields: numbers per sample
};

struct TableSection {
  std::string name;
  int64_t dim = 0;
  std::string storage = "float32";  // float32, bfloat16, float16
  Choice optimizer;
  Choice initializer;
  std::vector<Choice> admission;
  std::vector<Choice> eviction;
};

struct DenseSection {
  Choice optimizer;
  std::string precision = "float32";  // float32, bfloat16: of the operands of linear layers
  std::string home = "ps";            // ps, trainer: who keeps the variables
  std::string sharing = "private";    // private, hogwild: of the workers of one trainer
  int64_t pull_every = 1;             // steps between pulls from the ps
  int64_t merge_steps = 1;            // steps whose gradients are pushed as one
};

struct TrainSection {
  int64_t staleness = kInfinite;      // clocks; kInfinite: asynchronous
  int64_t threads = 1;                // workers of each trainer
  bool tensor_fuse = true;            // all that goes to one shard in one step in one message
  double evaluate_minutes = 0;        // between evaluations on data.test; 0: after each epoch only
  int64_t evaluate_steps = 0;         // the same in batches of the job
  bool exact_auc = false;             // of evaluations, which then keep every prediction
  int64_t window_samples = 100000;    // of each trainer, whose loss and AUC are told as it trains
  std::string loss = "bce";           // bce, softmax, squared
  std::vector<double> label_weights;  // one per label; empty: 1 each
  double gradient_scale = 1;          // of every gradient
  double clip_norm = 0;               // of each variable's gradient; 0: none
  std::string on_nan = "stop";        // stop, skip
  std::string dump;                   // file of predictions per sample; empty: none
  std::vector<std::string> dump_fields;  // whose embeddings are dumped, too
};

struct ClusterSection {
  std::string protocol = "inproc";  // grpc, grpc++, inproc
  int64_t ps = 1;
  int64_t shards = 1;  // of each ps; a shard is a lane of its process
  int64_t hubs = 1;
  int64_t trainers = 1;
  std::string token_file;
  std::string token;  // only from STARLING_TOKEN: a flag shows in the list of processes, a job file
                      // is shared
};

struct CheckpointSection {
  std::string path;  // empty: none is written
  int64_t every_minutes = 30;
  int64_t keep = 3;
};

struct TlsSection {
  std::string ca_file;
  std::string cert_file;
  std::string key_file;
  std::string server_name;
};

// Of one role's process. The names and bounds are those of net/options.h.
struct NetSection {
  std::string listen;  // host:port; empty: loopback, a port chosen by the kernel
  bool polling = false;
  bool pin_cores = false;
  int64_t first_core = 0;  // of the pinned lanes
  int64_t spin_us = 50;
  int64_t connect_timeout_ms = 3000;
  int64_t handshake_timeout_ms = 5000;
  int64_t backoff_min_ms = 5;
  int64_t backoff_max_ms = 1000;
  int64_t ping_every_ms = 1500;
  int64_t ping_timeout_ms = 3000;
  int64_t message_bytes_max = int64_t{1} << 30;
  int64_t connection_requests_max = 1024;
  int64_t connection_bytes_max = int64_t{512} << 20;
  int64_t client_channels_max = 4096;
  int64_t client_bytes_max = int64_t{4} << 30;
  int64_t server_requests_max = 1 << 16;
  int64_t server_bytes_max = int64_t{4} << 30;
  int64_t handshakes_max = 1024;
  int64_t pool_threads = 2;
  int64_t pool_queue_max = 4096;
  bool unix_sockets = true;
  bool pull = true;
  int64_t lend_bytes_min = 64 << 10;
  TlsSection tls;
};

struct LogSection {
  std::string level = "info";  // debug, info, warning, error, off
  std::string file;            // empty: standard error
};

struct SchedulerSection {
  NetSection net;
  int64_t lease_ms = 5000;  // a node that has not been heard of for this long is dead
  std::string ledger;       // file of the journal; empty: in memory, lost with the process
};

struct PsSection {
  NetSection net;
  int64_t memory_max = 0;                  // bytes; 0: no limit
  int64_t staging_max = int64_t{1} << 30;  // bytes of staged pushes and waiting lookups of a shard
};

struct HubSection {
  NetSection net;
  int64_t lanes = 1;
  int64_t readers = 1;       // threads that parse
  int64_t memory_max = 0;    // bytes; 0: no limit
  int64_t lease_ms = 30000;  // the right of one trainer to train one batch
  int64_t window = 64;       // batches prepared on the shards and not done
};

struct TrainerSection {
  NetSection net;
  int64_t lanes = 1;
  int64_t prefetch = 2;    // batches asked for ahead
  bool slow_blas = false;  // train even where matrix products run far below the CPU's speed
};

struct JobOptions {
  std::string name = "job";
  uint64_t seed = 0;
  DataSection data;
  std::vector<FieldSection> fields;
  std::vector<TableSection> tables;
  Choice model;
  DenseSection dense;
  TrainSection train;
  ClusterSection cluster;
  CheckpointSection checkpoint;
  SchedulerSection scheduler;
  PsSection ps;
  HubSection hub;
  TrainerSection trainer;
  LogSection log;
};

// The list of all keys, bound to `options`, which has to outlive it.
Schema schema_of(JobOptions& options);

}  // namespace starling
