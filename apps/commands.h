// SPDX-License-Identifier: Apache-2.0
// The commands of the program. Each takes the arguments after its name and gives the exit code.
#pragma once

#include "options.h"

namespace lacuna {

int run_command(const Arguments& arguments);
int chat_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int profile_command(const Arguments& arguments);
int inspect_command(const Arguments& arguments);
int convert_command(const Arguments& arguments);
int synth_command(const Arguments& arguments);

}  // namespace lacuna
