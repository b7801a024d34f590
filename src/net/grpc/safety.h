// What keeps strangers out of `grpc`: certificates, the cluster token, and where a server may
// listen.
//
// Uses: net, gRPC, OpenSSL. Threads: free functions.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <memory>
#include <string>

#include "base/log.h"
#include "net/address.h"
#include "net/options.h"

namespace starling {

// Call metadata. The token is readable on the way unless there is TLS.
inline constexpr char kTokenKey[] = "starling-token";
// Who calls, as "role.node.incarnation" in decimal; clients that are not ours leave it out.
inline constexpr char kIdentityKey[] = "starling-identity";
// Trailing metadata of a failure that a handler answered; all others are told with the name of the
// server.
inline constexpr char kAnsweredKey[] = "starling-answered";

using CallMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// InvalidArgument when the token has characters that metadata cannot carry (it must be printable
// ASCII without spaces at its ends), or when TLS files are missing that are needed. NotFound naming
// a file that cannot be read.
StatusOr<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const NetOptions& options);
StatusOr<std::shared_ptr<grpc::ChannelCredentials>> client_credentials(const NetOptions& options);

// Unauthenticated when the options ask for a token and the call does not bring the same.
Status check_token(const NetOptions& options, const CallMetadata& metadata);

std::string identity_text(const Identity& identity);
// False when the call does not say, or says it badly.
bool read_identity(const CallMetadata& metadata, Identity* out);

// Where a server may really listen. Without a token and without mutual TLS a wildcard becomes
// loopback, which the log says, and any other address is refused with FailedPrecondition.
StatusOr<Address> safe_address(const Address& wanted, const NetOptions& options, const Log& log);

}  // namespace starling
