// A store of functions of C, as the store where ranks meet.
#pragma once

#include <memory>

#include "gradsync/gradsync.h"
#include "gradsync/store.hpp"

namespace gradsync::c {

std::shared_ptr<KeyValueStore> store_of(const gradsync_store& given);

}  // namespace gradsync::c
