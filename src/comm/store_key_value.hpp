// A meeting over a store that the caller brought (gradsync/store.hpp): what it offers, any such store has.
//
// Under "gradsync/":
//   rank/R    number: 1 since rank R entered, 1 more at each gather after the first
//   entered   number: of ranks; the one that makes it 1 sets `first`
//   first     "GSYKV1", u64 number of the meeting, u32 its rank, u32 the world size, its library's version and, behind a zero byte,
//             what it comes for, if it says so; or of size 0 and why it gave up
//   G/R       what rank R brings to gather G, counted from 1
//   G/count   number: of ranks that have brought it, and 2^32 more for each that gave up before all had
//   G/all     u8 1, for each rank u32 bytes and the bytes; or u8 2, u32 rank that gave up, why
//   settled   number: of ranks that have read everything; the last removes each G/all
//
// The rank that brings the last blob of a gather reads them all and sets `all`, which the others wait for. Whoever gives up
// sets it too: as the count tells in which order ranks came and gave up, only one of the two does. A number is never 1 for
// two that add 1 to it, so nobody enters for a rank twice, nor a place where a meeting was before.
// Later versions keep `rank`, `entered` and `first`, so that versions that differ can say so.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/store.hpp"
#include "gradsync/store.hpp"

namespace gradsync {

inline constexpr std::size_t kAgreementBytesMax = 512;

class KeyValueMeeting final : public Store {
 public:
  // Enters. invalid_argument: another worker has this rank, or a meeting was here before; ranks disagree on the size. mismatch: they
  // come for different things. protocol: their versions differ. `version` is this library's.
  static Result<std::unique_ptr<KeyValueMeeting>> open(std::shared_ptr<KeyValueStore> store,
                                                       const StoreIdentity& identity, std::string version,
                                                       Deadline deadline);

  std::uint64_t job() const override { return job_; }
  Result<std::vector<std::string>> gather(const std::string& name, const std::string& blob, Deadline deadline) override;
  Status put(const std::string& name, const std::string& value, Deadline deadline) override;
  Result<std::string> get(const std::string& name, Deadline deadline) override;
  Status settle(Deadline deadline) override;
  void fail(const std::string& why) override;

 private:
  KeyValueMeeting(std::shared_ptr<KeyValueStore> store, const StoreIdentity& identity, std::string version)
      : store_(std::move(store)),
        identity_(identity),
        version_(std::move(version)),
        expected_(identity.size) {}

  Status enter(Deadline deadline);
  Status claim(Deadline deadline);
  Status check_first(std::string_view bytes);
  Result<std::vector<std::string>> collect(std::uint32_t number, Deadline deadline);
  Result<std::vector<std::string>> take_part(std::uint32_t number, const std::string& blob, Deadline deadline);
  Result<std::vector<std::string>> blobs_of(std::string_view all) const;
  Status missing(std::uint32_t number);

  // Calls of the caller's store; what they throw becomes a status.
  Status set(const std::string& key, std::string_view value);
  Result<std::string> wait_for(const std::string& key, Deadline deadline);
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  void remove(const std::string& key);

  std::shared_ptr<KeyValueStore> store_;
  StoreIdentity identity_;
  std::string version_;
  std::uint64_t job_ = 0;
  std::uint32_t gathered_ = 0;  // gathers that have ended well
  std::uint32_t expected_;      // ranks of the meeting, as the first said
  bool opening_ = false;        // the others wait for this rank's `first`
  bool collecting_ = false;     // … for its G/all
};

}  // namespace gradsync
