#include "train/notes.hpp"

#include <algorithm>
#include <array>

#include "base/status.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kMissingNamed = 16;
constexpr std::size_t kTextWords = 44;
constexpr std::size_t kTextBytes = kTextWords * sizeof(std::int64_t);
constexpr std::size_t kHead = 6;
using Words = std::array<std::int64_t, kHead + kMissingNamed + kTextWords>;

Words encode(const RankNote& note) {
  Words words{};
  const std::size_t named = std::min(note.missing.size(), kMissingNamed);
  const std::size_t text = std::min(note.failed.message.size(), kTextBytes);
  words[0] = static_cast<std::int64_t>(note.failed.code);
  words[1] = static_cast<std::int64_t>(text);
  words[2] = static_cast<std::int64_t>(note.missing_total);
  words[3] = static_cast<std::int64_t>(named);
  words[4] = note.not_finite;
  words[5] = static_cast<std::int64_t>(note.at);
  std::copy_n(note.missing.begin(), named, words.begin() + kHead);
  for (std::size_t i = 0; i < text; ++i) {
    const auto byte = static_cast<std::uint64_t>(static_cast<unsigned char>(note.failed.message[i]));
    words[kHead + kMissingNamed + i / 8] |= static_cast<std::int64_t>(byte << (8 * (i % 8)));
  }
  return words;
}

RankNote decode(const Words& words) {
  RankNote note;
  note.failed.code = static_cast<ErrorCode>(words[0]);
  const auto text = std::min(static_cast<std::size_t>(words[1]), kTextBytes);
  for (std::size_t i = 0; i < text; ++i)
    note.failed.message +=
        static_cast<char>((static_cast<std::uint64_t>(words[kHead + kMissingNamed + i / 8]) >> (8 * (i % 8))) & 0xff);
  note.missing_total = static_cast<std::uint64_t>(words[2]);
  const auto named = std::min(static_cast<std::size_t>(words[3]), kMissingNamed);
  for (std::size_t i = 0; i < named; ++i) note.missing.push_back(static_cast<std::uint32_t>(words[kHead + i]));
  note.not_finite = words[4];
  note.at = static_cast<std::uint64_t>(words[5]);
  return note;
}

// "ranks 0, 2 and 3"
std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

Status missing_verdict(std::span<const RankNote> notes, const Blame& blame) {
  constexpr std::size_t named_max = 8;
  std::vector<std::uint32_t> parameters;
  std::uint64_t most = 0;
  int first = -1;
  for (std::size_t r = 0; r < notes.size(); ++r) {
    if (notes[r].missing_total > 0 && first < 0) first = static_cast<int>(r);
    most = std::max(most, notes[r].missing_total);
    for (std::uint32_t p : notes[r].missing)
      if (std::find(parameters.begin(), parameters.end(), p) == parameters.end()) parameters.push_back(p);
  }
  if (first < 0) return {};
  std::sort(parameters.begin(), parameters.end());
  std::string text;
  const std::size_t named = std::min(parameters.size(), named_max);
  for (std::size_t i = 0; i < named; ++i) {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < notes.size(); ++r)
      if (std::find(notes[r].missing.begin(), notes[r].missing.end(), parameters[i]) != notes[r].missing.end())
        ranks.push_back(static_cast<int>(r));
    text += fmt::format("{}\"{}\" on {}", i == 0 ? "" : ", ", blame.parameters[parameters[i]].name, list_of(ranks));
  }
  if (most > named) text += fmt::format(" and others, up to {} on one rank", most);
  return peer_failure(ErrorCode::invalid_argument, first,
                      "step {}: no gradient for {}: every parameter must be ready before finish(), or find_unused on",
                      blame.step, text);
}

}  // namespace

void merge(StepSums& into, const StepSums& from) {
  into.samples = std::max(into.samples, from.samples);
  into.ranks_run_out = std::max(into.ranks_run_out, from.ranks_run_out);
  into.ranks_not_finite = std::max(into.ranks_not_finite, from.ranks_not_finite);
  into.ranks_order_differs = std::max(into.ranks_order_differs, from.ranks_order_differs);
  into.ranks_failed = std::max(into.ranks_failed, from.ranks_failed);
  into.missing = into.missing || from.missing;
}

std::vector<RankNote> exchange_notes(Communicator& control, std::uint32_t rank, std::uint32_t world,
                                     const RankNote& mine) {
  if (world == 1) return {mine};
  std::vector<Words> all(world);
  all[rank] = encode(mine);
  control.all_gather(ConstView(all[rank].data(), all[rank].size(), DType::i64),
                     View{all.data(), world * std::tuple_size_v<Words>, DType::i64});
  std::vector<RankNote> notes;
  for (const Words& words : all) notes.push_back(decode(words));
  return notes;
}

Status verdict_of(std::span<const RankNote> notes, const Blame& blame) {
  for (std::size_t r = 0; r < notes.size(); ++r)
    if (!notes[r].failed.ok())
      return peer_failure(notes[r].failed.code, static_cast<int>(r), "step {}: {}: {}", blame.step,
                          blame.describe(static_cast<int>(r)), notes[r].failed.message);
  if (Status status = missing_verdict(notes, blame); !status.ok()) return status;
  for (std::size_t r = 0; r < notes.size(); ++r)
    if (notes[r].not_finite >= 0)
      return peer_failure(ErrorCode::not_finite, static_cast<int>(r),
                          "step {}: the gradient of \"{}\" on {} is not finite at element {}", blame.step,
                          blame.parameters[static_cast<std::size_t>(notes[r].not_finite)].name,
                          blame.describe(static_cast<int>(r)), notes[r].at);
  return {};
}

}  // namespace gradsync
