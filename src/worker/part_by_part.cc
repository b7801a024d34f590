#include "worker/part_by_part.h"

#include <algorithm>
#include <map>
#include <span>

namespace starling {
namespace {

std::vector<Message> split_lookup(const Message& whole, const std::vector<std::string>& tables) {
  std::vector<Message> out;
  for (const std::string& table : tables) {
    out.push_back(whole);
    out.back().meta.mutable_embedding_lookup()->add_tables(table);
  }
  return out;
}

// Takes the tensor at `index` of `whole` along; where it stands now.
uint32_t take(const Message& whole, uint32_t index, Message& part) {
  part.tensors.push_back(whole.tensors.at(index));
  return static_cast<uint32_t>(part.tensors.size() - 1);
}

// What every part of a push has: the header, shows and clicks.
Message part_of(const Message& whole, uint32_t parts) {
  const v1::PushGradOption& option = whole.meta.push_grad();
  Message out;
  *out.meta.mutable_header() = whole.meta.header();
  v1::PushGradOption* mine = out.meta.mutable_push_grad();
  mine->set_parts_announced(parts);
  mine->set_merged(option.merged());
  if (option.has_shows_tensor()) mine->set_shows_tensor(take(whole, option.shows_tensor(), out));
  if (option.has_clicks_tensor()) mine->set_clicks_tensor(take(whole, option.clicks_tensor(), out));
  return out;
}

std::vector<Message> split_push(const Message& whole) {
  const v1::PushGradOption& option = whole.meta.push_grad();
  std::map<std::string, std::vector<const v1::DenseGradPart*>> variables;
  for (const v1::DenseGradPart& part : option.dense()) variables[part.variable()].push_back(&part);
  const auto parts = static_cast<uint32_t>(option.batch_size() + variables.size());
  std::vector<Message> out;
  for (const v1::BatchGradPart& part : option.batch()) {
    Message& one = out.emplace_back(part_of(whole, parts));
    v1::BatchGradPart* mine = one.meta.mutable_push_grad()->add_batch();
    *mine = part;
    if (part.has_rows_tensor()) mine->set_rows_tensor(take(whole, part.rows_tensor(), one));
    for (v1::FieldGrad& field : *mine->mutable_fields()) {
      field.set_sums_tensor(take(whole, field.sums_tensor(), one));
    }
  }
  for (const auto& [name, ranges] : variables) {
    Message& one = out.emplace_back(part_of(whole, parts));
    for (const v1::DenseGradPart* range : ranges) {
      v1::DenseGradPart* mine = one.meta.mutable_push_grad()->add_dense();
      *mine = *range;
      mine->set_grads_tensor(take(whole, range->grads_tensor(), one));
    }
  }
  // A step without data is a tick all the same.
  if (out.empty()) out.push_back(whole);
  return out;
}

// The answers of one shard as if one message had been asked.
Message join(std::span<Message> replies) {
  Message out = std::move(replies.front());
  for (Message& reply : replies.subspan(1)) {
    if (!reply.meta.has_embedding_lookup_reply()) continue;
    v1::EmbeddingLookupReply* all = out.meta.mutable_embedding_lookup_reply();
    v1::EmbeddingLookupReply* more = reply.meta.mutable_embedding_lookup_reply();
    all->set_rows_total(all->rows_total() + more->rows_total());
    all->set_staleness(std::max(all->staleness(), more->staleness()));
    const auto by = static_cast<uint32_t>(out.tensors.size());
    for (v1::LookupPart& part : *more->mutable_parts()) {
      if (part.has_rows_tensor()) part.set_rows_tensor(part.rows_tensor() + by);
      for (v1::LookupField& field : *part.mutable_fields()) {
        field.set_sums_tensor(field.sums_tensor() + by);
        if (field.has_samples_tensor()) field.set_samples_tensor(field.samples_tensor() + by);
      }
      *all->add_parts() = std::move(part);
    }
    std::move(reply.tensors.begin(), reply.tensors.end(), std::back_inserter(out.tensors));
  }
  return out;
}

}  // namespace

void PartByPart::call(Method method, std::vector<ShardMessage> messages, Deadline deadline,
                      DoneOr<std::vector<Message>> done) {
  std::vector<ShardMessage> sent;
  std::vector<size_t> counts;  // of each shard's parts
  for (ShardMessage& one : messages) {
    std::vector<Message> parts;
    if (method == Method::kPsEmbeddingLookup) {
      parts = split_lookup(one.message, tables_);
    } else if (method == Method::kPsPushGrad) {
      parts = split_push(one.message);
    } else {
      parts.push_back(std::move(one.message));
    }
    counts.push_back(parts.size());
    for (Message& part : parts) sent.push_back({one.shard, std::move(part)});
  }
  next_.call(method, std::move(sent), deadline,
             [counts = std::move(counts),
              done = std::move(done)](StatusOr<std::vector<Message>> replies) mutable {
               if (!replies.ok()) return done(replies.status());
               std::vector<Message> joined;
               size_t at = 0;
               for (const size_t count : counts) {
                 joined.push_back(join(std::span(*replies).subspan(at, count)));
                 at += count;
               }
               done(std::move(joined));
             });
}

}  // namespace starling
