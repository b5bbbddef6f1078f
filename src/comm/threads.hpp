// Ranks as threads of one process.
#pragma once

#include <memory>

#include "comm/site.hpp"

namespace gradsync {

// What the ranks of a thread job share.
class ThreadWorld;
std::shared_ptr<ThreadWorld> make_thread_world(std::uint32_t size, std::size_t ring_bytes);
std::unique_ptr<Site> make_thread_site(std::shared_ptr<ThreadWorld> world, std::uint32_t rank);

}  // namespace gradsync
