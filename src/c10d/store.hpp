// PyTorch's store as the place where the ranks of a communicator meet.
#pragma once

#include <memory>
#include <string>

#include "c10d/version.hpp"
#include "gradsync/store.hpp"

namespace gradsync::pytorch {

// `prefix` is put before every key, so that several meetings can be in one store.
std::shared_ptr<KeyValueStore> meeting_in(c10::intrusive_ptr<::c10d::Store> store, std::string prefix);

}  // namespace gradsync::pytorch
