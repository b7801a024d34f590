// make_network() puts the makers together: a Network with every transport of this build.
//
// Uses: net and its makers. Threads: any.
#pragma once

#include <memory>

#include "net/network.h"
#include "net/transport.h"

namespace starling {

// `metrics` outlives the network.
std::unique_ptr<Network> make_network(NetOptions options, Log log, Metrics& metrics);

// The transport inside of one process alone, for tests and simulations that wrap it.
std::unique_ptr<Transport> make_inproc();

}  // namespace starling
