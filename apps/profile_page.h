// SPDX-License-Identifier: Apache-2.0
// A profile as one HTML page that needs nothing beside itself: no script, no font, no image.
#pragma once

#include <string>

#include "profile_report.h"

namespace lacuna {

std::string profile_page(const ProfileReport& report);

}  // namespace lacuna
