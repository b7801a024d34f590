// PsOperation is one call of a PsClient while it runs: how it is cut over the shards, what each is
// sent and how the answers become one.
//
// Uses: base, wire, table's hash. Threads: the client's lane.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ps/client.h"
#include "ps/schema.h"

namespace starling {

// Which rows of an item one shard has: row numbers of keys, key - lo of a range, parts of a
// variable.
struct Positions {
  bool all = false;
  std::vector<uint32_t> list;
  bool empty() const { return !all && list.empty(); }
};

// What one shard is asked for.
struct Piece {
  uint32_t shard = 0;            // in the routes by which it was cut
  size_t number = 0;             // of a message that the caller made
  std::vector<Positions> items;  // one per item of the operation
  bool is_recut = false;         // by a newer map: its ranges travel as keys
};

class PsOperation {
 public:
  PsOperation(Method method, bool is_numbered) : method_(method), is_numbered_(is_numbered) {}
  virtual ~PsOperation() = default;
  Method method() const { return method_; }
  bool is_numbered() const { return is_numbered_; }

  // All of it, or with `refused` what that piece has. FailedPrecondition: the caller cut it.
  virtual StatusOr<std::vector<Piece>> cut(const ShardRoutes& routes, const Piece* refused) = 0;
  virtual Message request(const ShardRoutes& routes, const Piece& piece) const = 0;
  // Internal: an answer that does not fit the question.
  virtual Status take(const ShardRoutes& routes, const Piece& piece, Message reply) = 0;
  // The last call.
  virtual void finish(const Status& status) = 0;

 private:
  const Method method_;
  const bool is_numbered_;
};

// What the client knows of the job's tables and variables.
class ClientSchema {
 public:
  Status add(const v1::CreateOption& option);
  StatusOr<const v1::TableOptions*> table(const std::string& name) const;
  StatusOr<const v1::DenseOptions*> variable(const std::string& name) const;

 private:
  std::map<std::string, v1::TableOptions> tables_;
  std::map<std::string, v1::DenseOptions> variables_;
};

// InvalidArgument, NotFound as the calls of PsClient say.
StatusOr<std::unique_ptr<PsOperation>> make_pull(const ClientSchema& schema,
                                                 std::vector<KeyPull> parts,
                                                 PsClient::DoneOr<std::vector<PulledKeys>>& done);
StatusOr<std::unique_ptr<PsOperation>> make_push_grad(const ClientSchema& schema,
                                                      std::vector<KeyGrad> keys,
                                                      std::vector<DenseValues> dense,
                                                      PsClient::DoneStatus& done);
StatusOr<std::unique_ptr<PsOperation>> make_push(const ClientSchema& schema,
                                                 std::vector<KeyValues> keys,
                                                 std::vector<DenseValues> dense,
                                                 PsClient::DoneStatus& done);
StatusOr<std::unique_ptr<PsOperation>> make_pull_dense(
    const ClientSchema& schema, std::vector<DenseCopy> known,
    PsClient::DoneOr<std::vector<DenseCopy>>& done);
std::unique_ptr<PsOperation> make_raw(Method method, bool is_numbered,
                                      std::vector<ShardMessage> messages,
                                      PsClient::DoneOr<std::vector<Message>> done);

}  // namespace starling
