#include "scheduler/key_space.h"

#include <algorithm>

namespace starling {
namespace {

constexpr uint32_t kListed = 1000;  // GetOption.keys_max when it is missing
constexpr size_t kReplyBytes = 64 << 20;

std::string ledger_key(const std::string& key) { return "key/" + key; }

}  // namespace

Status KeySpace::load(const LedgerEntry& entry) {
  ledger::KeyRecord record;
  if (!record.ParseFromString(entry.value)) {
    return data_loss("ledger: key '{}' is not a key of the roles", entry.key);
  }
  bytes_ += record.value().value().size();
  keys_[record.value().key()] = std::move(record);
  return absl::OkStatus();
}

Status KeySpace::check(const v1::PutOption& option, uint32_t node) const {
  if (option.key().empty() || option.key().size() > limits_.name_bytes_max) {
    return invalid_argument("Scheduler.Put: the key has {} bytes, allowed are 1 to {}",
                            option.key().size(), limits_.name_bytes_max);
  }
  if (option.value().size() > limits_.value_bytes_max) {
    return invalid_argument("Scheduler.Put: the value of {} has {} bytes, at most {}", option.key(),
                            option.value().size(), limits_.value_bytes_max);
  }
  if (option.ephemeral() && node == 0) {
    return invalid_argument("Scheduler.Put: {} is ephemeral, but the caller is not registered",
                            option.key());
  }
  return absl::OkStatus();
}

void KeySpace::erase(Turn& turn, const std::string& key) {
  const auto it = keys_.find(key);
  if (it == keys_.end()) return;
  bytes_ -= it->second.value().value().size();
  keys_.erase(it);
  turn.erase(ledger_key(key));
  v1::Event event;
  event.mutable_key()->set_key(key);
  turn.tell(std::move(event));
}

Message KeySpace::put(Turn& turn, const v1::PutOption& option, uint32_t node) {
  if (const Status status = check(option, node); !status.ok()) return status_reply(status);
  const auto it = keys_.find(option.key());
  const uint64_t revision = it == keys_.end() ? 0 : it->second.value().revision();
  Message reply;
  v1::KeyValue* now = reply.meta.mutable_put_reply()->mutable_now();
  if (option.has_if_revision() && option.if_revision() != revision) {
    reply = status_reply(aborted("Scheduler.Put: {} has revision {}, not {}", option.key(),
                                 revision, option.if_revision()));
    now = reply.meta.mutable_put_reply()->mutable_now();
    now->set_key(option.key());
    if (it != keys_.end()) *now = it->second.value();
    return reply;
  }
  now->set_key(option.key());
  if (option.erase()) {
    erase(turn, option.key());
    return reply;
  }
  const size_t old_bytes = it == keys_.end() ? 0 : it->second.value().value().size();
  if ((it == keys_.end() && keys_.size() >= limits_.keys_max) ||
      bytes_ - old_bytes + option.value().size() > limits_.values_bytes_max) {
    return status_reply(resource_exhausted(
        "Scheduler.Put: {} keys with {} bytes are kept; keys_max is {}, values_bytes_max {}",
        keys_.size(), bytes_, limits_.keys_max, limits_.values_bytes_max));
  }
  bytes_ += option.value().size() - old_bytes;
  now->set_value(option.value());
  now->set_ephemeral(option.ephemeral());
  now->set_revision(turn.revision() + 1);
  v1::Event event;
  *event.mutable_key() = *now;
  turn.tell(std::move(event));
  ledger::KeyRecord& record = keys_[option.key()];
  *record.mutable_value() = *now;
  record.set_node(option.ephemeral() ? node : 0);
  turn.put(ledger_key(option.key()), record);
  return reply;
}

Message KeySpace::get(const v1::GetOption& option, uint64_t revision) const {
  Message message;
  v1::GetReply* reply = message.meta.mutable_get_reply();
  reply->set_revision(revision);
  if (!option.key().empty()) {
    if (const auto it = keys_.find(option.key()); it != keys_.end()) {
      *reply->add_values() = it->second.value();
    }
    return message;
  }
  const uint32_t asked = option.keys_max() == 0 ? kListed : option.keys_max();
  const int count_max = static_cast<int>(std::min(asked, limits_.keys_max));
  size_t bytes = 0;
  auto it = option.after() >= option.prefix() && !option.after().empty()
                ? keys_.upper_bound(option.after())
                : keys_.lower_bound(option.prefix());
  for (; it != keys_.end() && it->first.starts_with(option.prefix()); ++it) {
    if (reply->values_size() >= count_max || bytes > kReplyBytes) {
      reply->set_more(true);
      break;
    }
    bytes += it->second.value().value().size();
    *reply->add_values() = it->second.value();
  }
  return message;
}

void KeySpace::drop_node(Turn& turn, uint32_t node) {
  std::vector<std::string> gone;
  for (const auto& [key, record] : keys_) {
    if (record.node() == node && record.value().ephemeral()) gone.push_back(key);
  }
  for (const std::string& key : gone) erase(turn, key);
}

void KeySpace::tell_all(const std::vector<std::string>& prefixes, v1::WatchReply* out) const {
  for (const auto& [key, record] : keys_) {
    v1::Event event;
    *event.mutable_key() = record.value();
    if (is_wanted(event, prefixes)) *out->add_events() = std::move(event);
  }
}

}  // namespace starling
