// What the tests of this room share: a network with a server, and certificates made on the spot.
//
// Uses: net, OpenSSL. Threads: as net.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "net/client.h"
#include "net/makers.h"
#include "net/server.h"

namespace starling::grpc_testing {

inline Deadline patience() { return Deadline::in(RealClock(), seconds(60)); }

inline Address loopback() { return {.protocol = Protocol::kGrpc, .host = "127.0.0.1", .port = 0}; }

// Answers every request with its own message.
class Echo : public Handler {
 public:
  void handle(Request request, Reply reply) override {
    {
      MutexLock lock(mutex_);
      last_peer_ = *request.peer;
    }
    reply.send(std::move(request.message));
  }
  Peer last_peer() const {
    MutexLock lock(mutex_);
    return last_peer_;
  }

 private:
  mutable Mutex mutex_;
  Peer last_peer_ ABSL_GUARDED_BY(mutex_);
};

// One process's network. Lines of the log are kept.
class Node {
 public:
  explicit Node(NetOptions options = {}) {
    Log log(LogOptions{}, [this](std::string_view line) { lines_ += std::string(line) + "\n"; });
    network_ = make_network(std::move(options), log, metrics_);
  }
  Network& network() { return *network_; }
  const std::string& log() const { return lines_; }  // while nobody logs

  // A ps whose lanes all have this handler, for Ps alone.
  StatusOr<std::unique_ptr<Server>> serve(Handler& handler, Address at = loopback(),
                                          uint32_t lanes = 2) {
    LaneHandlers handlers{};
    handlers[static_cast<size_t>(Service::kPs)] = &handler;
    ServerOptions options;
    options.role = Service::kPs;
    options.listen = {std::move(at)};
    options.handlers.assign(lanes, handlers);
    return Server::start(*network_, std::move(options));
  }

 private:
  Metrics metrics_;
  std::string lines_;
  std::unique_ptr<Network> network_;
};

inline Target target_of(const Server& server, uint32_t lane = 0) {
  return {.address = server.addresses()[0], .lane = LaneId{lane}};
}

// A folder that goes with its owner.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "starling_grpc_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// A certificate and its key. Signs others when it is an authority.
class Certificate {
 public:
  // Of "localhost" and 127.0.0.1, signed by `issuer`; without one an authority of that name.
  explicit Certificate(const char* name, const Certificate* issuer = nullptr)
      : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), x509_(X509_new(), X509_free) {
    X509_set_version(x509_.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x509_.get()), issuer == nullptr ? 1 : 2);
    X509_gmtime_adj(X509_getm_notBefore(x509_.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509_.get()), 3600);
    X509_set_pubkey(x509_.get(), key_.get());
    X509_NAME* subject = X509_get_subject_name(x509_.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    const Certificate& signer = issuer == nullptr ? *this : *issuer;
    X509_set_issuer_name(x509_.get(), X509_get_subject_name(signer.x509_.get()));
    if (issuer == nullptr) {
      extend(NID_basic_constraints, "critical,CA:TRUE");
    } else {
      extend(NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    }
    X509_sign(x509_.get(), signer.key_.get(), EVP_sha256());
  }

  void write(const std::string& cert_path, const std::string& key_path) const {
    FILE* file = std::fopen(cert_path.c_str(), "w");
    PEM_write_X509(file, x509_.get());
    std::fclose(file);
    file = std::fopen(key_path.c_str(), "w");
    PEM_write_PrivateKey(file, key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }

 private:
  void extend(int nid, const char* text) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, text);
    X509_add_ext(x509_.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }

  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  std::unique_ptr<X509, void (*)(X509*)> x509_;
};

}  // namespace starling::grpc_testing
