// Mutants of a shard: rules of exactly-once and order, broken on purpose to show that the
// simulation (tests/sim) notices. Only the program sim_mutants is compiled with STARLING_MUTANTS;
// everywhere else each of these is the constant false.
//
// Uses: nothing. Threads: set once, before anything runs.
#pragma once

#ifdef STARLING_MUTANTS
namespace starling {

enum class PsMutant { kNone, kNoDedup, kSkippedTick, kEarlyLookup };
inline PsMutant ps_mutant = PsMutant::kNone;

}  // namespace starling
#define STARLING_PS_MUTANT(name) (ps_mutant == PsMutant::name)
#else
#define STARLING_PS_MUTANT(name) false
#endif
