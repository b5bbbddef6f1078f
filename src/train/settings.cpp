#include "train/settings.hpp"

#include <array>

#include "train/notes.hpp"

namespace gradsync {
namespace {

struct Setting {
  const char* name;
  std::int64_t value;
};

auto settings_of(const GradientSyncOptions& o) {
  return std::to_array<Setting>({{"bucket_bytes", static_cast<std::int64_t>(o.bucket_bytes)},
                                 {"lanes", o.lanes},
                                 {"overlap", static_cast<std::int64_t>(o.overlap)},
                                 {"overlap_only_if_worth_it", o.overlap_only_if_worth_it},
                                 {"deterministic", o.deterministic},
                                 {"find_unused", o.find_unused},
                                 {"check_finite", o.check_finite},
                                 {"weighted", o.weighted},
                                 {"replan", o.replan},
                                 {"hook", o.hook != nullptr}});
}

Status check_parameter(const Parameter& parameter) {
  if (parameter.dtype != DType::f16 && parameter.dtype != DType::bf16 && parameter.dtype != DType::f32 &&
      parameter.dtype != DType::f64)
    return failure(ErrorCode::invalid_argument, "parameter \"{}\" has gradients of {}, expected f16, bf16, f32 or f64",
                   parameter.name, name_of(parameter.dtype));
  for (std::int64_t size : parameter.shape)
    if (size < 0)
      return failure(ErrorCode::invalid_argument, "parameter \"{}\" has a dimension of {}", parameter.name, size);
  if (parameter.sparse && parameter.shape.empty())
    return failure(ErrorCode::invalid_argument, "parameter \"{}\" is sparse but has no dimension of rows",
                   parameter.name);
  return {};
}

void compare_options(Communicator& control, const GradientSyncOptions& options) {
  const auto mine = settings_of(options);
  constexpr std::size_t count = std::tuple_size_v<std::remove_const_t<decltype(mine)>>;
  const auto world = static_cast<std::size_t>(control.size());
  std::vector<std::int64_t> all(world * count);
  std::int64_t* own = all.data() + static_cast<std::size_t>(control.rank()) * count;
  for (std::size_t i = 0; i < count; ++i) own[i] = mine[i].value;
  control.all_gather(ConstView(own, count, DType::i64), view(all));
  for (std::size_t r = 1; r < world; ++r)
    for (std::size_t i = 0; i < count; ++i)
      if (all[r * count + i] != all[i])
        throw Error(peer_failure(ErrorCode::mismatch, static_cast<int>(r),
                                 "GradientSync: option {} is {} on {} and {} on {}", mine[i].name, all[i],
                                 control.describe(0), all[r * count + i], control.describe(static_cast<int>(r))));
}

}  // namespace

Status check_settings(std::span<const Parameter> parameters, const GradientSyncOptions& options) {
  constexpr std::uint32_t lanes_max = 8;
  if (options.lanes < 1 || options.lanes > lanes_max)
    return failure(ErrorCode::invalid_argument, "GradientSync: {} lanes, expected 1 to {}", options.lanes, lanes_max);
  if (options.hook && options.overlap == Overlap::backward_forward)
    return failure(ErrorCode::unsupported,
                   "GradientSync: a hook replaces the whole exchange of a bucket, which Overlap::backward_forward cuts "
                   "in two: use Overlap::backward");
  for (const Parameter& parameter : parameters)
    if (Status status = check_parameter(parameter); !status.ok()) return status;
  return {};
}

void agree_on_settings(Communicator& control, std::span<const Parameter> parameters,
                       const GradientSyncOptions& options) {
  RankNote mine;
  mine.failed = check_settings(parameters, options);
  const auto notes = exchange_notes(control, static_cast<std::uint32_t>(control.rank()),
                                    static_cast<std::uint32_t>(control.size()), mine);
  throw_if_failed(mine.failed);
  for (std::size_t r = 0; r < notes.size(); ++r)
    if (!notes[r].failed.ok())
      throw Error(peer_failure(notes[r].failed.code, static_cast<int>(r), "{} (told by {})", notes[r].failed.message,
                               control.describe(static_cast<int>(r))));
  compare_options(control, options);
}

}  // namespace gradsync
