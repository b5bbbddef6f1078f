// Same bits: whatever the buckets, the lanes and the overlap.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/random.hpp"
#include "model.hpp"

namespace gradsync::training {
namespace {

// About 6 MB of gradients, so that caps of 1, 5 and 25 MB make different buckets.
std::vector<Parameter> large_model() {
  return {{"a", {700, 900}},
          {"a.bias", {900}},
          {"b", {3, 3, 64, 128}},
          {"c", {1, 333}, DType::f16},
          {"d", {401, 600}, DType::bf16},
          {"e", {77, 1000}, DType::f64},
          {"f", {1000, 500}},
          {"f.bias", {500}}};
}

// Exponents from 2^-20 to 2^19, so that any other order of a sum shows. A table of them for each dtype, begun elsewhere for
// each seed: filling must not take longer than what is tested.
class Wild {
 public:
  Wild() {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      std::vector<std::byte>& table = tables_[static_cast<std::size_t>(dtype)];
      table.resize(kValues * size_of(dtype));
      for (std::size_t e = 0; e < kValues; ++e)
        cases::put(dtype, table.data(), e, value(e, dtype == DType::f16 ? 5 : 0));
    }
  }
  void fill(const GradientSync& sync, std::size_t parameter, std::uint64_t seed) const {
    const View view = sync.gradient(parameter);
    const std::size_t element = size_of(view.dtype);
    const std::vector<std::byte>& table = tables_[static_cast<std::size_t>(view.dtype)];
    std::size_t from = mix64(seed * 1009 + parameter) % kValues;
    for (std::size_t at = 0; at < view.count; from = 0) {
      const std::size_t count = std::min(view.count - at, kValues - from);
      std::memcpy(static_cast<std::byte*>(view.data) + at * element, table.data() + from * element, count * element);
      at += count;
    }
  }

 private:
  static constexpr std::size_t kValues = 100003;
  static double value(std::size_t e, int smaller) {
    const std::uint64_t random = mix64(e * 31 + 7);
    const double mantissa = 1 + static_cast<double>((random >> 8) % 1000000) / 1e6;
    return std::ldexp((random >> 40) % 2 == 0 ? mantissa : -mantissa, static_cast<int>(random % 40) - 20 - smaller);
  }
  std::array<std::vector<std::byte>, kDTypeCount> tables_;
};

struct Way {
  std::size_t bucket_bytes = 0;
  std::uint32_t lanes = 2;
  bool deterministic = true;
  bool forward = false;
  bool weighted = false;
  double norm_max = 0;
};

GradientSyncOptions options_of(const Way& way) {
  GradientSyncOptions options;
  options.bucket_bytes = way.bucket_bytes;
  options.lanes = way.lanes;
  options.deterministic = way.deterministic;
  options.weighted = way.weighted;
  options.overlap = way.forward ? Overlap::backward_forward : Overlap::backward;
  options.overlap_only_if_worth_it = false;
  return options;
}

// The bytes of every step, and the norms.
struct Outcome {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<double> norms;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(const Wild& wild, std::uint32_t size, const std::vector<Parameter>& model, const Way& way) {
  std::vector<Outcome> outcomes(size);
  in_world({.size = size}, [&](Communicator& comm) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(comm.rank())];
    GradientSync sync(comm, model, options_of(way));
    const auto rank = static_cast<std::uint64_t>(comm.rank());
    for (std::uint64_t step = 0; step < 4; ++step) {
      sync.begin_step();
      if (way.weighted) sync.set_samples(7 + 5 * rank + step);
      for (std::size_t p = model.size(); p-- > 0;) {
        wild.fill(sync, p, step * 64 + rank);
        sync.ready(p);
      }
      sync.finish();
      EXPECT_EQ(sync.overlaps_forward(), way.forward);
      if (way.norm_max > 0) {
        if (step % 2 == 1) sync.wait(2);
        outcome.norms.push_back(sync.clip_norm(way.norm_max));
        if (step == 3) outcome.norms.push_back(sync.clip_norm(way.norm_max / 3));
      }
      for (std::size_t p = 0; p < model.size(); ++p) sync.wait(p);
      outcome.bytes.push_back(bytes_of(sync));
    }
  });
  for (std::size_t r = 1; r < size; ++r) EXPECT_TRUE(outcomes[r] == outcomes[0]) << "rank " << r;
  return outcomes[0];
}

TEST(Bits, AreTheSameForAllBucketSizesAndLanesWhereThatIsAsked) {
  const Wild wild;
  for (const std::uint32_t size : {2u, 3u, 5u}) {
    const Outcome expected = outcome_of(wild, size, large_model(), {.bucket_bytes = 1u << 20, .lanes = 2});
    for (const std::size_t megabytes : {1u, 5u, 25u, 0u})
      for (const std::uint32_t lanes : {2u, 4u})
        EXPECT_TRUE(outcome_of(wild, size, large_model(), {.bucket_bytes = megabytes << 20, .lanes = lanes}) ==
                    expected)
            << size << " ranks, " << megabytes << " MB, " << lanes << " lanes";
  }
}

TEST(Bits, OfBothOverlapsAreTheSame) {
  const Wild wild;
  for (const std::uint32_t size : {2u, 3u, 5u}) {
    const Way backward{.bucket_bytes = 300000};
    Way forward = backward;
    forward.forward = true;
    EXPECT_TRUE(outcome_of(wild, size, large_model(), backward) == outcome_of(wild, size, large_model(), forward))
        << size;
  }
}

TEST(Bits, OfBothOverlapsAreTheSameAtTwoRanksWhateverTheAlgorithm) {
  const Wild wild;
  const Way backward{.bucket_bytes = 300000, .deterministic = false};
  Way forward = backward;
  forward.forward = true;
  EXPECT_TRUE(outcome_of(wild, 2, large_model(), backward) == outcome_of(wild, 2, large_model(), forward));
}

TEST(Bits, OfClippedAndWeightedGradientsAreTheSameInBothOverlaps) {
  const Wild wild;
  for (const bool weighted : {false, true})
    for (const std::uint32_t size : {2u, 3u}) {
      const Way backward{.bucket_bytes = 300000, .weighted = weighted, .norm_max = 1e5};
      Way forward = backward;
      forward.forward = true;
      const Outcome expected = outcome_of(wild, size, large_model(), backward);
      EXPECT_GT(expected.norms[0], 1e5);
      EXPECT_TRUE(expected == outcome_of(wild, size, large_model(), forward))
          << size << " ranks, weighted " << weighted;
    }
}

TEST(Bits, OfASplitParameterAreThoseOfAWholeOne) {
  const Wild wild;
  const std::vector<Parameter> model = {{"w", {1000, 70}}, {"v", {11}}};
  for (const std::uint32_t size : {2u, 3u})
    EXPECT_TRUE(outcome_of(wild, size, model, {.bucket_bytes = 4096}) ==
                outcome_of(wild, size, model, {.bucket_bytes = 1u << 24}));
}

}  // namespace
}  // namespace gradsync::training
