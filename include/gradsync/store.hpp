// Where the ranks of a job meet if the program has a store of its own: PyTorch's c10d::Store, etcd, a map behind a lock.
//
//   class Etcd : public gradsync::KeyValueStore { … };
//   gradsync::Options options;
//   options.rank = rank, options.size = size;
//   options.store = std::make_shared<Etcd>("/jobs/4711/");      // a place that no other meeting uses
//   auto comm = gradsync::Communicator::create(options);
//
// The calls are made by the thread that calls Communicator::create, one at a time, and none is made after it has returned.
// Each meeting needs a place of its own: a wrapper that puts a prefix before every key, say. A meeting at a place that has
// seen one, ended well or not, is refused with an error; no rank joins a meeting of the past.
//
// All keys begin with "gradsync/". A rank makes 13 calls, whatever the number of ranks, three of which may wait; the rank
// that comes last also reads what all have brought. Nothing is awaited after a `get` that timed out.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradsync {

// What a call throws ends the meeting: Error(timeout) as such, std::bad_alloc as out_of_memory, anything else as
// unavailable with its text. Keys are printable ASCII, values any bytes, at most 64 bytes and, for each rank, 400 bytes.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // From now on the key has the value, for every rank.
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until somebody has set the key, and returns its value. Throws Error(timeout) if nobody has by then; `timeout` is
  // above 0.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to the key's number, which is 0 at first, and returns the sum: atomic among all ranks. Keys that are added to are
  // never set or got.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Nobody will ask for this key any more. May do nothing.
  virtual void remove(const std::string& /*key*/) {}
};

}  // namespace gradsync
