// The text of export_score.py, which `starling export` writes as score.py.
//
// Uses: nothing. Threads: a constant.
#pragma once

namespace starling {

extern const char* const kExportScore;

}  // namespace starling
