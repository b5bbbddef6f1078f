#include "torch/checkpoint_state.hpp"

#include <c10/util/Type.h>
#include <fmt/ranges.h>

#include <sstream>

#include "base/wire.hpp"
#include "torch/tensors.hpp"

namespace gradsync::torch {
namespace {

constexpr std::uint64_t kCountMax = 1u << 24;  // of counters, tensors, dimensions and groups

class Encoder {
 public:
  void number(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) out_.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
  void text(std::string_view value) {
    number(value.size());
    out_.append(value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Decoder {
 public:
  explicit Decoder(std::string_view in) : in_(in) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    const std::string_view part = bytes(8);
    for (std::size_t i = 0; i < part.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(part[i])) << (8 * i);
    return value;
  }
  std::uint64_t count() {
    const std::uint64_t value = number();
    if (value > kCountMax) ok_ = false;
    return ok_ ? value : 0;
  }
  std::string_view text() { return bytes(number()); }
  bool at_end() const { return ok_ && in_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes(std::uint64_t count) {
    if (count > in_.size()) return ok_ = false, std::string_view();
    const std::string_view part = in_.substr(0, count);
    in_.remove_prefix(count);
    return part;
  }
  std::string_view in_;
  bool ok_ = true;
};

std::string text_of(const SavedTensor& tensor) {
  return fmt::format("{} ({} [{}])", tensor.name, tensor.type, fmt::join(tensor.shape, ", "));
}

SavedTensor saved(const NamedTensor& named) {
  const Tensor& tensor = named.tensor;
  return {named.name,
          ::c10::toString(tensor.scalar_type()),
          tensor.sizes().vec(),
          {static_cast<const char*>(tensor.data_ptr()), bytes_of(tensor)}};
}

std::string type_of(const ::torch::optim::Optimizer& optimizer) { return c10::demangle(typeid(optimizer).name()); }

std::vector<std::uint64_t> groups_of(const ::torch::optim::Optimizer& optimizer) {
  std::vector<std::uint64_t> groups;
  for (const auto& group : optimizer.param_groups()) groups.push_back(group.params().size());
  return groups;
}

Status check_tensors(const SavedState& state, const std::string& path, const std::vector<NamedTensor>& tensors) {
  for (std::size_t i = 0; i < std::max(state.tensors.size(), tensors.size()); ++i) {
    const std::string there = i < state.tensors.size() ? text_of(state.tensors[i]) : "none";
    const std::string here = i < tensors.size() ? text_of(saved(tensors[i])) : "none";
    if (there != here)
      return failure(
          ErrorCode::mismatch,
          "checkpoint {} is of another model: {} parameters and buffers, expected {}; number {} is {}, expected {}",
          path, state.tensors.size(), tensors.size(), i, there, here);
    if (state.tensors[i].bytes.size() != bytes_of(tensors[i].tensor))
      return failure(ErrorCode::protocol, "checkpoint {}: {} has {} bytes, expected {}", path, here,
                     state.tensors[i].bytes.size(), bytes_of(tensors[i].tensor));
  }
  return {};
}

}  // namespace

std::vector<NamedTensor> state_of(const ::torch::nn::Module& module) {
  std::vector<NamedTensor> all;
  const auto add = [&](const char* kind, const auto& named) {
    for (const auto& item : named) {
      if (!item.value().defined()) continue;
      const std::string name = fmt::format("{} {}", kind, item.key());
      require_dense_on_cpu(name, item.value());
      all.push_back({name, item.value().detach().contiguous()});
    }
  };
  add("parameter", module.named_parameters());
  add("buffer", module.named_buffers());
  return all;
}

SavedState describe(const std::vector<NamedTensor>& tensors, const ::torch::optim::Optimizer& optimizer,
                    const std::map<std::string, std::int64_t>& counters) {
  SavedState state{counters, {}, type_of(optimizer), groups_of(optimizer), bytes_of(optimizer)};
  for (const NamedTensor& named : tensors) state.tensors.push_back(saved(named));
  return state;
}

std::string encode(const SavedState& state) {
  Encoder out;
  out.number(state.counters.size());
  for (const auto& [name, value] : state.counters) {
    out.text(name);
    out.number(static_cast<std::uint64_t>(value));
  }
  out.number(state.tensors.size());
  for (const SavedTensor& tensor : state.tensors) {
    out.text(tensor.name);
    out.text(tensor.type);
    out.number(tensor.shape.size());
    for (const std::int64_t size : tensor.shape) out.number(static_cast<std::uint64_t>(size));
    out.text(tensor.bytes);
  }
  out.text(state.optimizer_type);
  out.number(state.optimizer_groups.size());
  for (const std::uint64_t parameters : state.optimizer_groups) out.number(parameters);
  out.text(state.optimizer);
  return out.take();
}

Result<SavedState> decode(std::string_view payload, const std::string& path) {
  Decoder in(payload);
  SavedState state;
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const std::string name(in.text());
    state.counters[name] = static_cast<std::int64_t>(in.number());
  }
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    SavedTensor tensor;
    tensor.name = in.text();
    tensor.type = in.text();
    for (std::uint64_t dims = in.count(); dims > 0 && in.ok(); --dims)
      tensor.shape.push_back(static_cast<std::int64_t>(in.number()));
    tensor.bytes = in.text();
    state.tensors.push_back(std::move(tensor));
  }
  state.optimizer_type = in.text();
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) state.optimizer_groups.push_back(in.number());
  state.optimizer = in.text();
  if (!in.at_end()) return failure(ErrorCode::protocol, "checkpoint {} cannot be read: its parts do not add up", path);
  return state;
}

Status check_fits(const SavedState& state, const std::string& path, const std::vector<NamedTensor>& tensors,
                  const ::torch::optim::Optimizer& optimizer) {
  if (Status status = check_tensors(state, path, tensors); !status.ok()) return status;
  if (state.optimizer_type != type_of(optimizer))
    return failure(ErrorCode::mismatch, "checkpoint {} is of another optimiser: {}, expected {}", path,
                   state.optimizer_type, type_of(optimizer));
  if (state.optimizer_groups != groups_of(optimizer))
    return failure(ErrorCode::mismatch, "checkpoint {}: the optimiser's groups have [{}] parameters, expected [{}]",
                   path, fmt::join(state.optimizer_groups, ", "), fmt::join(groups_of(optimizer), ", "));
  return {};
}

std::string bytes_of(const ::torch::optim::Optimizer& optimizer) {
  ::torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

void restore(::torch::optim::Optimizer& optimizer, const std::string& bytes) {
  ::torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  optimizer.state().clear();
  optimizer.load(archive);
}

}  // namespace gradsync::torch
