#include "net/grpc/safety.h"

#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace starling {
namespace {

StatusOr<std::string> read_pem(std::string_view what, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return not_found("net.tls.{}: {} cannot be read or is empty", what, path);
  }
  return text.str();
}

struct Pem {
  std::string ca, cert, key;
};

using Bio = std::unique_ptr<BIO, int (*)(BIO*)>;
using X509Ptr = std::unique_ptr<X509, void (*)(X509*)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

X509Ptr parse_certificate(const std::string& text) {
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  return {PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free};
}

KeyPtr parse_key(const std::string& text) {
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  return {PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr), EVP_PKEY_free};
}

// gRPC would say what is wrong in its own log only, and start all the same.
Status check_files(const Pem& pem, const TlsOptions& tls) {
  if (!pem.ca.empty() && parse_certificate(pem.ca) == nullptr) {
    return invalid_argument("net.tls.ca_file: {} has no PEM certificate", tls.ca_file);
  }
  if (pem.cert.empty()) return absl::OkStatus();
  const X509Ptr cert = parse_certificate(pem.cert);
  if (cert == nullptr) {
    return invalid_argument("net.tls.cert_file: {} has no PEM certificate", tls.cert_file);
  }
  const KeyPtr key = parse_key(pem.key);
  if (key == nullptr) {
    return invalid_argument("net.tls.key_file: {} has no PEM key", tls.key_file);
  }
  if (X509_check_private_key(cert.get(), key.get()) != 1) {
    return invalid_argument("net.tls: {} is not the key of {}", tls.key_file, tls.cert_file);
  }
  return absl::OkStatus();
}

StatusOr<Pem> read_files(const TlsOptions& tls) {
  Pem pem;
  STARLING_ASSIGN_OR_RETURN(pem.ca, read_pem("ca_file", tls.ca_file));
  STARLING_ASSIGN_OR_RETURN(pem.cert, read_pem("cert_file", tls.cert_file));
  STARLING_ASSIGN_OR_RETURN(pem.key, read_pem("key_file", tls.key_file));
  STARLING_RETURN_IF_ERROR(check_files(pem, tls));
  return pem;
}

Status check_token_text(const std::string& token) {
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c >= ' ' && c <= '~'; });
  const bool padded = !token.empty() && (token.front() == ' ' || token.back() == ' ');
  if (printable && !padded) return absl::OkStatus();
  return invalid_argument(
      "net.token: over grpc it must be printable ASCII without spaces at its ends");
}

template <typename T>
bool read_number(std::string_view* text, T* out) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *out);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

bool skip_dot(std::string_view* text) {
  if (text->empty() || text->front() != '.') return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

StatusOr<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const NetOptions& options) {
  STARLING_RETURN_IF_ERROR(check_token_text(options.token));
  if (!options.tls.enabled()) return grpc::InsecureServerCredentials();
  if (options.tls.cert_file.empty()) {
    return invalid_argument("net.tls: a server with ca_file needs cert_file and key_file too");
  }
  STARLING_ASSIGN_OR_RETURN(Pem pem, read_files(options.tls));
  grpc::SslServerCredentialsOptions tls(
      pem.ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                     : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  tls.pem_root_certs = std::move(pem.ca);
  tls.pem_key_cert_pairs.push_back({std::move(pem.key), std::move(pem.cert)});
  return grpc::SslServerCredentials(tls);
}

StatusOr<std::shared_ptr<grpc::ChannelCredentials>> client_credentials(const NetOptions& options) {
  STARLING_RETURN_IF_ERROR(check_token_text(options.token));
  if (!options.tls.enabled()) return grpc::InsecureChannelCredentials();
  STARLING_ASSIGN_OR_RETURN(Pem pem, read_files(options.tls));
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = std::move(pem.ca);
  tls.pem_private_key = std::move(pem.key);
  tls.pem_cert_chain = std::move(pem.cert);
  return grpc::SslCredentials(tls);
}

Status check_token(const NetOptions& options, const CallMetadata& metadata) {
  if (options.token.empty()) return absl::OkStatus();
  const auto it = metadata.find(kTokenKey);
  if (it == metadata.end()) {
    return unauthenticated("the call has no {}, which this server asks for", kTokenKey);
  }
  // The length may be told apart by its time, the content may not.
  if (it->second.size() != options.token.size() ||
      CRYPTO_memcmp(it->second.data(), options.token.data(), options.token.size()) != 0) {
    return unauthenticated("the call's {} is not that of this cluster", kTokenKey);
  }
  return absl::OkStatus();
}

std::string identity_text(const Identity& identity) {
  return fmt::format("{}.{}.{}", identity.role, identity.node, identity.incarnation);
}

bool read_identity(const CallMetadata& metadata, Identity* out) {
  const auto it = metadata.find(kIdentityKey);
  if (it == metadata.end()) return false;
  std::string_view text(it->second.data(), it->second.size());
  Identity read;
  if (!read_number(&text, &read.role) || !skip_dot(&text) || !read_number(&text, &read.node) ||
      !skip_dot(&text) || !read_number(&text, &read.incarnation) || !text.empty()) {
    return false;
  }
  *out = read;
  return true;
}

StatusOr<Address> safe_address(const Address& wanted, const NetOptions& options, const Log& log) {
  const bool mutual_tls = !options.tls.ca_file.empty() && !options.tls.cert_file.empty();
  if (is_loopback(wanted.host) || mutual_tls) return wanted;
  if (!options.token.empty()) {
    if (!options.tls.enabled()) {
      log.warning("grpc_token_readable",
                  {{"listen", wanted.to_string()}, {"why", "the token travels without TLS"}});
    }
    return wanted;
  }
  if (!is_wildcard(wanted.host)) {
    return failed_precondition(
        "{}: a server without net.token (or mutual TLS: net.tls.ca_file and cert_file) listens on "
        "loopback only",
        wanted.to_string());
  }
  Address safe = wanted;
  safe.host = wanted.host == "::" ? "::1" : "127.0.0.1";
  log.warning("loopback_only", {{"wanted", wanted.to_string()},
                                {"listen", safe.to_string()},
                                {"why", "neither net.token nor mutual TLS is set"}});
  return safe;
}

}  // namespace starling
