#include "comm/store_key_value.hpp"

#include <algorithm>
#include <new>
#include <optional>

#include "base/limits.hpp"
#include "base/random.hpp"
#include "base/wire.hpp"
#include "comm/sockets.hpp"

namespace gradsync {
namespace {

constexpr std::string_view kMagic = "GSYKV1";
constexpr std::int64_t kGaveUp = std::int64_t{1} << 32;
constexpr auto kLookAround = std::chrono::seconds(1);  // after a deadline, to find out who is missing
enum class Kind : std::uint8_t { blobs = 1, failure = 2 };

std::int64_t arrived(std::int64_t count) { return count % kGaveUp; }
bool somebody_gave_up(std::int64_t count) { return count >= kGaveUp; }

std::string gather_key(std::uint32_t number, std::string_view what) {
  return fmt::format("gradsync/{}/{}", number, what);
}
std::string blob_key(std::uint32_t number, std::uint32_t rank) { return gather_key(number, std::to_string(rank)); }
std::string rank_key(std::uint32_t rank) { return fmt::format("gradsync/rank/{}", rank); }

// What the first to enter says. A size of 0: it gave up, and why stands for the version.
struct First {
  std::uint64_t job = 0;
  std::uint32_t rank = 0, size = 0;
  std::string version, agreement;
};

std::string encode(const First& first) {
  const std::string words = first.agreement.empty() ? first.version : first.version + '\0' + first.agreement;
  std::string out(kMagic.size() + 16 + words.size(), '\0');
  WireWriter wire(as_writable_bytes(out));
  wire.bytes(kMagic);
  wire.u64(first.job);
  wire.u32(first.rank);
  wire.u32(first.size);
  wire.bytes(words);
  return out;
}

Result<First> decode_first(std::string_view bytes) {
  WireReader wire(as_bytes(bytes));
  const bool ours = wire.bytes(kMagic.size()) == kMagic;
  First first;
  first.job = wire.u64();
  first.rank = wire.u32();
  first.size = wire.u32();
  first.version = wire.bytes(wire.left());
  if (const std::size_t end = first.version.find('\0'); end != std::string::npos) {
    first.agreement = first.version.substr(end + 1);
    first.version.resize(end);
  }
  if (ours && wire.ok()) return first;
  return failure(ErrorCode::protocol, "the program's store has {} bytes under gradsync/first that are not gradsync's",
                 bytes.size());
}

std::string_view purpose(std::string_view agreement) {
  return agreement.empty() ? std::string_view("nothing in particular") : agreement;
}

Status left(std::uint32_t rank, std::string_view why) {
  return peer_failure(ErrorCode::peer_lost, static_cast<int>(rank), "rank {} left the rendezvous: {}", rank, why);
}

std::string encode_blobs(const std::vector<std::string>& blobs) {
  std::size_t bytes = 1;
  for (const std::string& blob : blobs) bytes += 4 + blob.size();
  std::string out(bytes, '\0');
  WireWriter wire(as_writable_bytes(out));
  wire.u8(static_cast<std::uint8_t>(Kind::blobs));
  for (const std::string& blob : blobs) {
    wire.u32(static_cast<std::uint32_t>(blob.size()));
    wire.bytes(blob);
  }
  return out;
}

std::string encode_failure(std::uint32_t rank, std::string_view why) {
  why = why.substr(0, limits::notice_bytes_max);
  std::string out(5 + why.size(), '\0');
  WireWriter wire(as_writable_bytes(out));
  wire.u8(static_cast<std::uint8_t>(Kind::failure));
  wire.u32(rank);
  wire.bytes(why);
  return out;
}

// Runs a call of the caller's store; what it throws becomes a status that names the call.
template <class Call>
auto guarded(std::string_view what, const std::string& key, Call&& call, std::optional<Deadline> deadline = {})
    -> Result<decltype(call())> {
  const auto failed = [&](ErrorCode code, std::string_view why) {
    return failure(code, "the program's store cannot {} {}: {}", what, key, why);
  };
  try {
    return call();
  } catch (const std::bad_alloc&) { return failed(ErrorCode::out_of_memory, "no memory"); } catch (const Error& error) {
    return failed(error.code() == ErrorCode::timeout ? ErrorCode::timeout : ErrorCode::unavailable, error.what());
  } catch (const std::exception& error) {
    // Many stores have no type for it.
    const bool late = deadline && deadline->passed();
    return failed(late ? ErrorCode::timeout : ErrorCode::unavailable, error.what());
  } catch (...) { return failed(ErrorCode::unavailable, "it threw something that is no std::exception"); }
}

}  // namespace

Status KeyValueMeeting::set(const std::string& key, std::string_view value) {
  return guarded("set", key, [&] { return store_->set(key, value), true; }).status();
}

Result<std::string> KeyValueMeeting::wait_for(const std::string& key, Deadline deadline) {
  const std::chrono::milliseconds left(std::max(1, deadline.poll_milliseconds()));
  return guarded(
      "get", key, [&] { return store_->get(key, left); }, deadline);
}

Result<std::int64_t> KeyValueMeeting::add(const std::string& key, std::int64_t amount) {
  return guarded("add to", key, [&] { return store_->add(key, amount); });
}

void KeyValueMeeting::remove(const std::string& key) {
  (void)guarded("remove", key, [&] { return store_->remove(key), true; });
}

Result<std::unique_ptr<KeyValueMeeting>> KeyValueMeeting::open(std::shared_ptr<KeyValueStore> store,
                                                               const StoreIdentity& identity, std::string version,
                                                               Deadline deadline) {
  std::unique_ptr<KeyValueMeeting> meeting(new KeyValueMeeting(std::move(store), identity, std::move(version)));
  if (Status status = meeting->claim(deadline); !status) {
    if (status.code == ErrorCode::mismatch) meeting->fail(status.message);
    return status;
  }
  if (Status status = meeting->enter(deadline); !status) return meeting->fail(status.message), status;
  return meeting;
}

// The others know nothing of a worker that is refused here, unless it came for something else: then somebody here is wrong.
Status KeyValueMeeting::claim(Deadline deadline) {
  const std::string key = rank_key(identity_.rank);
  const auto claims = add(key, 1);
  if (!claims) return claims.status();
  if (*claims == 1) return {};
  if (const auto undone = add(key, -1); !undone) return undone.status();
  if (!identity_.agreement.empty()) {  // it may be a meeting for something else
    const auto first = wait_for("gradsync/first", earlier(deadline, Deadline::after(kLookAround)));
    if (Status status = first ? check_first(*first) : Status{}; status.code == ErrorCode::mismatch) return status;
  }
  return failure(
      ErrorCode::invalid_argument,
      "rank {} is already taken: by another worker, or by an earlier meeting at this place of the store (each "
      "needs keys of its own)",
      identity_.rank);
}

Status KeyValueMeeting::enter(Deadline deadline) {
  const auto entered = add("gradsync/entered", 1);
  if (!entered) return entered.status();
  if (*entered == 1) {
    opening_ = true;
    job_ = random_number();
    Status status =
        set("gradsync/first", encode(First{job_, identity_.rank, identity_.size, version_, identity_.agreement}));
    opening_ = !status.ok();
    return status;
  }
  const auto first = wait_for("gradsync/first", deadline);
  if (first) return check_first(*first);
  return first.status().code == ErrorCode::timeout ? missing(1) : first.status();
}

Status KeyValueMeeting::check_first(std::string_view bytes) {
  const auto first = decode_first(bytes);
  if (!first) return first.status();
  const int peer = static_cast<int>(first->rank);
  if (first->size == 0) return left(first->rank, first->version);
  expected_ = first->size;
  if (first->version != version_)
    return peer_failure(ErrorCode::protocol, peer, "rank {} has gradsync {}, rank {} has gradsync {}", identity_.rank,
                        version_, first->rank, first->version);
  if (first->agreement != identity_.agreement)
    return peer_failure(ErrorCode::mismatch, peer, "rank {} comes for {}, rank {} for {}", identity_.rank,
                        purpose(identity_.agreement), first->rank, purpose(first->agreement));
  if (first->size != identity_.size)
    return peer_failure(ErrorCode::invalid_argument, peer,
                        "ranks disagree on the world size: rank {} says {}, rank {} says {}", identity_.rank,
                        identity_.size, first->rank, first->size);
  job_ = first->job;
  return {};
}

Result<std::vector<std::string>> KeyValueMeeting::gather(const std::string&, const std::string& blob,
                                                         Deadline deadline) {
  const std::uint32_t number = gathered_ + 1;
  if (number > 1)
    if (const auto here = add(rank_key(identity_.rank), 1); !here) return here.status();
  auto blobs = take_part(number, blob, deadline);
  if (!blobs) return blobs;
  ++gathered_;
  remove(blob_key(number, identity_.rank));
  return blobs;
}

Result<std::vector<std::string>> KeyValueMeeting::take_part(std::uint32_t number, const std::string& blob,
                                                            Deadline deadline) {
  if (Status status = set(blob_key(number, identity_.rank), blob); !status) return status;
  const auto count = add(gather_key(number, "count"), 1);
  if (!count) return count.status();
  if (arrived(*count) > identity_.size)
    return failure(ErrorCode::protocol, "{} ranks came to a meeting of {}", arrived(*count), identity_.size);
  if (arrived(*count) == identity_.size && !somebody_gave_up(*count)) return collect(number, deadline);
  const auto all = wait_for(gather_key(number, "all"), deadline);
  if (all) return blobs_of(*all);
  return all.status().code == ErrorCode::timeout ? missing(number) : all.status();
}

Result<std::vector<std::string>> KeyValueMeeting::collect(std::uint32_t number, Deadline deadline) {
  collecting_ = true;
  std::vector<std::string> blobs;
  for (std::uint32_t rank = 0; rank < identity_.size; ++rank) {
    auto blob = wait_for(blob_key(number, rank), deadline);
    if (!blob) return blob.status();
    blobs.push_back(std::move(*blob));
  }
  if (Status status = set(gather_key(number, "all"), encode_blobs(blobs)); !status) return status;
  collecting_ = false;
  return blobs;
}

Result<std::vector<std::string>> KeyValueMeeting::blobs_of(std::string_view all) const {
  WireReader wire(as_bytes(all));
  const auto kind = static_cast<Kind>(wire.u8());
  if (kind == Kind::failure) {
    const std::uint32_t rank = wire.u32();
    return left(rank, wire.bytes(wire.left()));
  }
  std::vector<std::string> blobs;
  for (std::uint32_t rank = 0; rank < identity_.size && wire.ok(); ++rank) blobs.push_back(wire.bytes(wire.u32()));
  if (kind != Kind::blobs || !wire.ok() || wire.left() != 0)
    return failure(ErrorCode::protocol, "the program's store has {} bytes that are not what {} ranks brought",
                   all.size(), identity_.size);
  return blobs;
}

Status KeyValueMeeting::missing(std::uint32_t number) {
  const Deadline grace = Deadline::after(kLookAround);
  std::vector<bool> here(identity_.size, true);
  for (std::uint32_t rank = 0; rank < identity_.size && !grace.passed(); ++rank) {
    const auto times = add(rank_key(rank), 0);
    if (!times) return times.status();
    here[rank] = *times >= number;
  }
  const auto first = std::find(here.begin(), here.end(), false);
  const int peer = first == here.end() ? -1 : static_cast<int>(first - here.begin());
  return peer_failure(ErrorCode::timeout, peer, "{}{}", arrival_text(here),
                      peer < 0 ? ", but the last of them has not passed on what they brought" : "");
}

Status KeyValueMeeting::put(const std::string& name, const std::string& value, Deadline) {
  return set("gradsync/value/" + name, value);
}

Result<std::string> KeyValueMeeting::get(const std::string& name, Deadline deadline) {
  return wait_for("gradsync/value/" + name, deadline);
}

Status KeyValueMeeting::settle(Deadline) {
  const auto settled = add("gradsync/settled", 1);
  if (!settled) return settled.status();
  if (*settled == identity_.size)
    for (std::uint32_t number = 1; number <= gathered_; ++number) remove(gather_key(number, "all"));
  return {};
}

// In a gather that all have come to the last of them speaks; the others go on and hear it in the next.
void KeyValueMeeting::fail(const std::string& why) {
  if (opening_)
    (void)set("gradsync/first", encode(First{0, identity_.rank, 0, why.substr(0, limits::notice_bytes_max), {}}));
  for (const std::uint32_t number : {gathered_ + 1, gathered_ + 2}) {
    const auto count = add(gather_key(number, "count"), kGaveUp);
    if (!count) return;
    if (!collecting_ && arrived(*count) >= expected_) continue;
    (void)set(gather_key(number, "all"), encode_failure(identity_.rank, why));
    return;
  }
}

}  // namespace gradsync
