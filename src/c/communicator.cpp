// The communicator and its memory for C: joining, asking, splitting, ending.
#include "gradsync/communicator.hpp"

#include <algorithm>
#include <cstring>

#include "c/handles.hpp"
#include "c/numbers.hpp"
#include "c/store.hpp"
#include "c/structs.hpp"

namespace gradsync::c {
namespace {

using std::chrono::nanoseconds;

Options options_of(const gradsync_options* given, bool processes) {
  if (given == nullptr) return processes ? Options::from_environment() : Options{};
  const gradsync_options wanted = read_struct("gradsync_options", given, gradsync_options GRADSYNC_OPTIONS_INIT);
  if (wanted.reserved != 0)
    refuse(ErrorCode::unsupported, "gradsync_options.reserved is {}, expected 0", wanted.reserved);
  Options options;
  if (processes && wanted.store != nullptr) {
    if (wanted.environment != 0) options = Options::settings_from_environment();
    options.store = store_of(*wanted.store);
  } else if (processes && wanted.environment != 0) {
    options = Options::from_environment();
  }
  if (wanted.rank != -1) options.rank = wanted.rank;
  if (wanted.size != -1) options.size = wanted.size;
  if (wanted.rendezvous != nullptr) options.rendezvous = wanted.rendezvous;
  if (wanted.interfaces != nullptr) options.interface = wanted.interfaces;
  if (wanted.host != nullptr) options.host = wanted.host;
  if (wanted.timeout_ns != 0) options.timeout = nanoseconds(wanted.timeout_ns);
  if (wanted.start_timeout_ns != 0) options.start_timeout = nanoseconds(wanted.start_timeout_ns);
  if (wanted.fault_seed != 0) options.fault_seed = wanted.fault_seed;
  if (wanted.transport != GRADSYNC_TRANSPORT_AUTO) options.transport = transport_of(wanted.transport);
  if (wanted.lanes != 0) options.lanes = wanted.lanes;
  return options;
}

// The ranks of threads(): all become handles, or none.
void hand_out_all(std::vector<Communicator> ranks, gradsync_comm** comms) {
  std::vector<gradsync_comm*> made;
  made.reserve(ranks.size());
  try {
    for (Communicator& rank : ranks) made.push_back(hand_out<gradsync_comm>(std::move(rank)));
  } catch (...) {
    for (gradsync_comm* comm : made) take_back(comm);
    throw;
  }
  std::copy(made.begin(), made.end(), comms);
}

gradsync_counters counters_of(const Counters& counted) {
  return {sizeof(gradsync_counters), counted.messages_sent,    counted.bytes_sent, counted.messages_received,
          counted.bytes_received,    counted.elements_reduced, counted.operations, counted.staging_bytes_peak};
}

// As snprintf does it.
void copy_text(const std::string& text, char* into, std::size_t capacity, std::size_t* length) {
  if (capacity > 0) {
    require(into, "the address for the text");
    const std::size_t n = std::min(text.size(), capacity - 1);
    std::memcpy(into, text.data(), n);
    into[n] = '\0';
  }
  if (length != nullptr) *length = text.size();
}

}  // namespace
}  // namespace gradsync::c

using namespace gradsync;
using namespace gradsync::c;

extern "C" {

gradsync_code gradsync_create(const gradsync_options* options, gradsync_comm** comm) {
  return guarded(__func__, [&] {
    require(comm, "the address for the communicator");
    *comm = hand_out<gradsync_comm>(Communicator::create(options_of(options, true)));
  });
}

gradsync_code gradsync_threads(uint32_t size, const gradsync_options* options, gradsync_comm** comms) {
  return guarded(__func__, [&] {
    require(comms, "the address for the communicators");
    hand_out_all(Communicator::threads(size, options_of(options, false)), comms);
  });
}

gradsync_code gradsync_destroy(gradsync_comm* comm) {
  return guarded(__func__, [&] {
    if (comm != nullptr) take_back(comm)->destroy();
  });
}

gradsync_code gradsync_abort(gradsync_comm* comm, const char* why) {
  return guarded(__func__, [&] {
    const auto communicator = behind(comm);
    why == nullptr ? communicator->abort() : communicator->abort(why);
  });
}

gradsync_code gradsync_rank(gradsync_comm* comm, int* rank) {
  return guarded(__func__, [&] {
    require(rank, "the address for the rank");
    *rank = behind(comm)->rank();
  });
}

gradsync_code gradsync_size(gradsync_comm* comm, int* size) {
  return guarded(__func__, [&] {
    require(size, "the address for the size");
    *size = behind(comm)->size();
  });
}

gradsync_code gradsync_status(gradsync_comm* comm) {
  return guarded(__func__, [&] { throw_if_failed(behind(comm)->status()); });
}

gradsync_code gradsync_describe(gradsync_comm* comm, int rank, char* text, size_t capacity, size_t* length) {
  return guarded(__func__, [&] { copy_text(behind(comm)->describe(rank), text, capacity, length); });
}

gradsync_code gradsync_hosts(gradsync_comm* comm, uint32_t* hosts, size_t capacity) {
  return guarded(__func__, [&] {
    const auto communicator = behind(comm);
    const std::vector<std::uint32_t>& numbers = communicator->hosts();
    require(hosts, "the address for the hosts");
    if (capacity < numbers.size())
      refuse(ErrorCode::invalid_argument, "there is room for {} hosts, expected {} or more", capacity, numbers.size());
    std::copy(numbers.begin(), numbers.end(), hosts);
  });
}

gradsync_code gradsync_get_counters(gradsync_comm* comm, gradsync_counters* counters) {
  return guarded(__func__, [&] {
    require(counters, "the address for the counters");
    write_struct("gradsync_counters", counters_of(behind(comm)->counters()), counters);
  });
}

gradsync_code gradsync_split(gradsync_comm* comm, int color, int key, gradsync_comm** part) {
  return guarded(__func__, [&] {
    require(part, "the address for the communicator");
    Communicator made = behind(comm)->split(color, key);
    *part = made ? hand_out<gradsync_comm>(std::move(made)) : nullptr;
  });
}

gradsync_code gradsync_group(gradsync_comm* comm, const int* ranks, size_t count, gradsync_comm** part) {
  return guarded(__func__, [&] {
    require(part, "the address for the communicator");
    if (count > 0) require(ranks, "the list of ranks");
    *part = hand_out<gradsync_comm>(behind(comm)->group(std::span(ranks, count)));
  });
}

gradsync_code gradsync_tune(gradsync_comm* comm) {
  return guarded(__func__, [&] { behind(comm)->tune(); });
}

gradsync_code gradsync_allocate(gradsync_comm* comm, size_t bytes, gradsync_memory** memory, void** data) {
  return guarded(__func__, [&] {
    require(memory, "the address for the memory");
    require(data, "the address for the data");
    Memory made = behind(comm)->allocate(bytes);
    void* const at = made.data();
    *memory = hand_out<gradsync_memory>(std::move(made));
    *data = at;
  });
}

gradsync_code gradsync_memory_free(gradsync_memory* memory) {
  return guarded(__func__, [&] {
    if (memory != nullptr) take_back(memory);
  });
}

}  // extern "C"
