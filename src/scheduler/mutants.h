// Mutants of the scheduler: rules of cuts, broken on purpose to show that the simulation
// (tests/sim) notices. Only the program sim_mutants is compiled with STARLING_MUTANTS; everywhere
// else each of these is the constant false.
//
// Uses: nothing. Threads: set once, before anything runs.
#pragma once

#ifdef STARLING_MUTANTS
namespace starling {

enum class SchedulerMutant { kNone, kUndrainedCut };
inline SchedulerMutant scheduler_mutant = SchedulerMutant::kNone;

}  // namespace starling
#define STARLING_SCHEDULER_MUTANT(name) (scheduler_mutant == SchedulerMutant::name)
#else
#define STARLING_SCHEDULER_MUTANT(name) false
#endif
