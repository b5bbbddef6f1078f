#include "train/model_check.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/random.hpp"
#include "base/status.hpp"

namespace gradsync {
namespace {

std::uint64_t hash_of(std::uint64_t hash, const std::string& text) {
  hash = mix64(hash ^ text.size());
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

struct Model {
  std::uint64_t count = 0, hash = 0;
  bool operator==(const Model&) const = default;
};

// The first rank whose model is not rank 0's; 0 if there is none.
int first_that_differs(Communicator& comm, const Model& mine) {
  const std::array<std::uint64_t, 2> input = {mine.count, mine.hash};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(comm.size()));
  comm.all_gather(view(input), view(all));
  for (int r = 1; r < comm.size(); ++r) {
    const auto at = 2 * static_cast<std::size_t>(r);
    if (all[at] != all[0] || all[at + 1] != all[1]) return r;
  }
  return 0;
}

// The descriptions of one rank's parameters, on every rank.
std::vector<std::string> descriptions_of(Communicator& comm, int root, const std::vector<std::string>& mine) {
  std::string text;
  std::vector<std::uint64_t> ends;
  if (comm.rank() == root)
    for (const std::string& one : mine) ends.push_back((text += one).size());
  std::array<std::uint64_t, 2> sizes = {ends.size(), text.size()};
  comm.broadcast(view(sizes), root);
  ends.resize(sizes[0]);
  text.resize(sizes[1]);
  comm.broadcast(view(ends), root);
  comm.broadcast(View{text.data(), text.size(), DType::u8}, root);
  std::vector<std::string> all;
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends) {
    all.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return all;
}

std::string at_or_none(const std::vector<std::string>& all, std::size_t index) {
  return index < all.size() ? all[index] : "nothing";
}

}  // namespace

std::size_t Parameter::elements() const {
  std::size_t product = 1;
  for (const std::int64_t extent : shape) {
    const auto factor = static_cast<std::size_t>(extent);
    if (extent < 0 || (factor != 0 && product > std::numeric_limits<std::size_t>::max() / 8 / factor))
      throw Error(
          failure(ErrorCode::invalid_argument, "parameter {}: the shape is negative or too large", describe(*this)));
    product *= factor;
  }
  return product;
}

std::string describe(const Parameter& parameter) {
  return fmt::format("{} ({} [{}]{})", parameter.name, name_of(parameter.dtype), fmt::join(parameter.shape, ", "),
                     parameter.sparse ? ", sparse" : "");
}

void check_same_model(Communicator& comm, std::span<const Parameter> parameters, const char* what) {
  std::vector<std::string> mine;
  std::uint64_t hash = 0;
  for (const Parameter& parameter : parameters) hash = hash_of(hash, mine.emplace_back(describe(parameter)));
  const int other = first_that_differs(comm, {mine.size(), hash});
  if (other == 0) return;
  const std::vector<std::string> first = descriptions_of(comm, 0, mine), second = descriptions_of(comm, other, mine);
  std::size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  throw Error(peer_failure(ErrorCode::mismatch, comm.rank() == other ? 0 : other,
                           "model: {} has {} {}, {} has {}; the first that differs is number {}: {} against {}",
                           comm.describe(0), first.size(), what, comm.describe(other), second.size(), at,
                           at_or_none(first, at), at_or_none(second, at)));
}

}  // namespace gradsync
