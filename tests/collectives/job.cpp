#include "collectives/job.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>

#include "algorithms/catalogue.hpp"
#include "base/status.hpp"

namespace gradsync::test {
namespace {

constexpr std::uint64_t kComplaintsMax = 20;

// Whether the whole result is on every rank.
bool is_replicated(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::broadcast;
}

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

Job::Job(Communicator& comm)
    : comm_(comm),
      caller_(comm),
      rank_(static_cast<std::uint32_t>(comm.rank())),
      size_(static_cast<std::uint32_t>(comm.size())) {}

void Job::reduce_everything() {
  for (std::size_t d = 0; d < kDTypeCount; ++d)
    for (std::size_t o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (!supports(dtype, op)) continue;
      const ReducedPatterns patterns = reduced_patterns(dtype, op, rank_, size_);
      for (Collective collective : reducing_collectives())
        make_calls({collective, dtype, op}, {{}, &patterns.mine, &patterns.result});
    }
}

void Job::move_everything() {
  for (std::size_t d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const std::vector<Pattern> patterns = moved_patterns(dtype, size_);
    for (Collective collective : moving_collectives(size_)) make_calls({collective, dtype}, {patterns});
  }
}

void Job::make_calls(Kind kind, const Sources& sources) {
  for (std::size_t count : counts_of(size_))
    for (Call call : calls_of(kind, count)) {
      call.salt = ++salt_;
      call.root = static_cast<int>(salt_ % size_);
      make(call, sources, is_replicated(kind.collective));
      covered_.insert({kind, count});
    }
  if (is_replicated(kind.collective))
    print_digest(fmt::format("{}_{}_{}", name_of(kind.collective), name_of(kind.dtype), name_of(kind.op)));
}

void Job::make(Call call, const Sources& sources, bool replicated) {
  const std::string wrong = caller_.make(call, sources);
  ++calls_;
  if (!wrong.empty()) complain(call, wrong);
  if (replicated) digest_.add(caller_.output());
}

void Job::complain(const Call& call, const std::string& wrong) {
  if (++wrong_ <= kComplaintsMax) std::printf("rank %u: %s: %s\n", rank_, call.name().c_str(), wrong.c_str());
}

void Job::print_digest(const std::string& what) {
  std::printf("digest %s %s\n", what.c_str(), hex(digest_.take()).c_str());
}

// Wide floats -------------------------------------------------------------------------------------------------------

void Job::reduce_wide_floats() {
  for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) wide(dtype, op);
}

void Job::wide(DType dtype, ReduceOp op) {
  const Pattern mine = wide_pattern(dtype, rank_);
  const Bounds bounds(dtype, op, size_);
  const bool with_large = (dtype == DType::f32 && op == ReduceOp::sum) || (dtype == DType::bf16 && op == ReduceOp::avg);
  for (Collective collective : reducing_collectives()) {
    for (std::size_t count : counts_of(size_)) {
      if (count == kLarge && !with_large) continue;
      for (const CatalogueEntry& entry : catalogue())
        if (entry.collective == collective)
          wide_call({.collective = collective,
                     .dtype = dtype,
                     .op = op,
                     .algorithm = entry.algorithm,
                     .count = count,
                     .shared = count >= kMiddle && collective == Collective::reduce_scatter},
                    mine, bounds);
    }
    if (is_replicated(collective))
      print_digest(fmt::format("wide_{}_{}_{}", name_of(collective), name_of(dtype), name_of(op)));
  }
}

// Once apart, and for all but the largest once in place: within the bound, and the same bits.
void Job::wide_call(Call call, const Pattern& mine, const Bounds& bounds) {
  call.salt = ++salt_;
  call.root = static_cast<int>(salt_ % size_);
  Sha256 apart{};
  for (bool in_place : {false, true}) {
    if (in_place && call.count == kLarge) break;
    call.in_place = in_place;
    make(call, {{}, &mine, nullptr}, is_replicated(call.collective));
    const std::string wrong = outside(call, mine, bounds);
    if (!wrong.empty()) complain(call, wrong);
    Digest digest;
    digest.add(caller_.output());
    const Sha256 bits = digest.take();
    if (in_place && bits != apart) complain(call, "in place the bits differ");
    apart = bits;
  }
}

// The first element of the output that is not within its bound, or "".
std::string Job::outside(const Call& call, const Pattern& mine, const Bounds& bounds) const {
  const Roles roles = roles_of(call, rank_, size_, {{}, &mine, nullptr});
  const std::byte* got = caller_.output().data();
  const auto wrong = bounds.outside(got, call.salt, roles.output_first, roles.output_count);
  if (!wrong) return {};
  Bits bits = 0;
  std::memcpy(&bits, got + *wrong * size_of(call.dtype), size_of(call.dtype));
  return fmt::format("element {} is {}", *wrong, bounds.text(bits, call.salt, roles.output_first + *wrong));
}

// Barriers ----------------------------------------------------------------------------------------------------------

// Nobody leaves before the last has come: all clocks of the machine are one.
void Job::pass_barriers() {
  for (int i = 0; i < 20; ++i) {
    const std::int64_t times[2] = {now_ns(), (i % 2 == 0 ? comm_.barrier() : comm_.barrier_async().wait(), now_ns())};
    std::vector<std::int64_t> all(2 * size_);
    comm_.all_gather(view(times), view(all));
    for (std::uint32_t came = 0; came < size_; ++came)
      for (std::uint32_t left = 0; left < size_; ++left)
        if (all[2 * came] > all[2 * left + 1])
          complain({.collective = Collective::barrier},
                   fmt::format("rank {} left before rank {} had come", left, came));
  }
}

bool Job::finish() {
  std::printf("covered %zu\nmade %llu calls, %llu wrong\n", covered_.size(), static_cast<unsigned long long>(calls_),
              static_cast<unsigned long long>(wrong_));
  return wrong_ == 0;
}

}  // namespace gradsync::test
