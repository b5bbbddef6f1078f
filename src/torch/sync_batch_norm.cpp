#include "gradsync/torch/sync_batch_norm.hpp"

#include <fmt/ranges.h>

#include <cmath>

#include "base/status.hpp"
#include "torch/channels.hpp"
#include "torch/tensors.hpp"

namespace gradsync::torch {
namespace {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;

struct BatchStatistics {  // over all ranks
  double count = 0;
  std::vector<double> mean, variance;  // biased
};

// What forward leaves for backward, and what it needs besides tensors.
struct Pass : ::torch::CustomClassHolder {
  std::shared_ptr<Communicator> comm;
  ChannelLayout layout;
  double epsilon = 0;
  bool affine = false;
  BatchStatistics statistics;
  std::vector<double> inverse_deviation, weight;  // weight: ones where there is none
};
using PassHandle = c10::intrusive_ptr<Pass>;

// What the input is kept in: its own format where channels are last in memory, as convolutions like it.
::torch::MemoryFormat format_of(const Tensor& input) {
  for (const auto format : {::torch::MemoryFormat::ChannelsLast, ::torch::MemoryFormat::ChannelsLast3d})
    if (input.dim() == (format == ::torch::MemoryFormat::ChannelsLast ? 4 : 5) && input.is_contiguous(format))
      return format;
  return ::torch::MemoryFormat::Contiguous;
}

ChannelLayout layout_of(const Tensor& input) {
  ChannelLayout layout{input.size(0), input.size(1), 1, false};
  for (std::int64_t d = 2; d < input.dim(); ++d) layout.inner *= input.size(d);
  layout.channels_last = layout.inner == 1 || format_of(input) != ::torch::MemoryFormat::Contiguous;
  return layout;
}

template <class Body>
auto with_elements(const Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == ::torch::kFloat64) return body(double{});
  return body(float{});
}

Tensor tensor_of(const std::vector<double>& values, const Tensor& like) {
  return ::torch::tensor(values, ::torch::kFloat64).to(like.scalar_type());
}

std::vector<double> values_of(const Tensor& tensor, std::int64_t channels, double otherwise) {
  if (!tensor.defined()) return std::vector<double>(static_cast<std::size_t>(channels), otherwise);
  const Tensor plain = tensor.detach().to(::torch::kFloat64).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

// One rank's count, means and squares are `2 * channels + 1` numbers.
BatchStatistics combine(const std::vector<double>& all, std::size_t channels, std::size_t ranks) {
  BatchStatistics sum{0, std::vector<double>(channels), std::vector<double>(channels)};
  for (std::size_t r = 0; r < ranks; ++r) {
    const double* const part = all.data() + r * (2 * channels + 1);
    const double count = part[0];
    if (count == 0) continue;
    const double total = sum.count + count;
    for (std::size_t c = 0; c < channels; ++c) {
      const double difference = part[1 + c] - sum.mean[c];
      sum.mean[c] += difference * (count / total);
      sum.variance[c] += part[1 + channels + c] + difference * difference * (sum.count * count / total);
    }
    sum.count = total;
  }
  for (double& squares : sum.variance) squares /= sum.count;
  return sum;
}

BatchStatistics exchange(Communicator& comm, ChannelLayout layout, const ChannelMoments& mine) {
  std::vector<double> message = {static_cast<double>(layout.values())};
  message.insert(message.end(), mine.mean.begin(), mine.mean.end());
  message.insert(message.end(), mine.squares.begin(), mine.squares.end());
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<double> all(ranks * message.size());
  comm.all_gather(view(message), view(all));
  BatchStatistics statistics = combine(all, static_cast<std::size_t>(layout.channels), ranks);
  if (statistics.count > 1) return statistics;
  throw Error(failure(ErrorCode::invalid_argument,
                      "SyncBatchNorm: {} values a channel over all ranks, expected more than 1", statistics.count));
}

void prepare(Pass& pass) {
  pass.inverse_deviation.clear();
  for (const double variance : pass.statistics.variance)
    pass.inverse_deviation.push_back(1.0 / std::sqrt(variance + pass.epsilon));
}

std::vector<double> times(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> product(a.size());
  for (std::size_t c = 0; c < a.size(); ++c) product[c] = a[c] * b[c];
  return product;
}

struct Normalise : ::torch::autograd::Function<Normalise> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        PassHandle pass) {
    const Tensor x = input.contiguous(format_of(input));
    Tensor y = ::torch::empty_like(x);
    pass->weight = values_of(pass->affine ? weight : Tensor(), pass->layout.channels, 1);
    const std::vector<double> shift = values_of(pass->affine ? bias : Tensor(), pass->layout.channels, 0);
    with_elements(x, [&](auto element) {
      using T = decltype(element);
      pass->statistics = exchange(*pass->comm, pass->layout, channel_moments(x.data_ptr<T>(), pass->layout));
      prepare(*pass);
      channel_affine(x.data_ptr<T>(), pass->layout,
                     {pass->statistics.mean, times(pass->weight, pass->inverse_deviation), shift}, y.data_ptr<T>());
    });
    context->save_for_backward({x, weight, bias});
    context->saved_data["pass"] = c10::IValue::make_capsule(pass);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (::torch::GradMode::is_enabled())
      throw Error(failure(ErrorCode::unsupported, "SyncBatchNorm: backward with create_graph"));
    const variable_list saved = context->get_saved_variables();
    const auto pass = c10::static_intrusive_pointer_cast<Pass>(context->saved_data["pass"].toCapsule());
    const Tensor& x = saved[0];
    const Tensor dy = gradients[0].to(x.scalar_type()).contiguous(format_of(x));
    return with_elements(
        x, [&](auto element) { return gradients_of<decltype(element)>(*pass, dy, x, saved[1], saved[2]); });
  }

  template <class T>
  static variable_list gradients_of(Pass& pass, const Tensor& dy, const Tensor& x, const Tensor& weight,
                                    const Tensor& bias) {
    const ChannelSums mine = channel_sums(dy.data_ptr<T>(), x.data_ptr<T>(), pass.layout, pass.statistics.mean);
    std::vector<double> sums = mine.dy;
    sums.insert(sums.end(), mine.dy_x.begin(), mine.dy_x.end());
    pass.comm->all_reduce(view(sums), ReduceOp::sum);
    const std::size_t channels = mine.dy.size();
    ChannelGradient gradient{pass.statistics.mean, {}, {}, times(pass.weight, pass.inverse_deviation)};
    for (std::size_t c = 0; c < channels; ++c) {
      const double inverse = pass.inverse_deviation[c];
      gradient.shift.push_back(sums[c] / pass.statistics.count);
      gradient.slope.push_back(sums[channels + c] / pass.statistics.count * inverse * inverse);
    }
    Tensor dx = ::torch::empty_like(x);
    channel_gradient(dy.data_ptr<T>(), x.data_ptr<T>(), pass.layout, gradient, dx.data_ptr<T>());
    if (!pass.affine) return {dx, Tensor(), Tensor(), Tensor()};
    return {dx, tensor_of(times(mine.dy_x, pass.inverse_deviation), weight), tensor_of(mine.dy, bias), Tensor()};
  }
};

void check_input(const Tensor& input, std::int64_t features) {
  if (input.dim() < 2 || input.size(1) != features)
    throw Error(failure(ErrorCode::invalid_argument, "SyncBatchNorm: input is {}, expected (N, {}, …)",
                        fmt::format("({})", fmt::join(input.sizes().vec(), ", ")), features));
  if (!input.device().is_cpu() || !input.is_floating_point())
    throw Error(failure(ErrorCode::unsupported, "SyncBatchNorm: input is {} on {}, expected a float on cpu",
                        ::c10::toString(input.scalar_type()), input.device().str()));
}

// running = (1 - factor) * running + factor * fresh
void blend(const Tensor& running, double factor, const std::vector<double>& fresh) {
  std::vector<double> values = values_of(running, running.numel(), 0);
  for (std::size_t c = 0; c < values.size(); ++c) values[c] = (1 - factor) * values[c] + factor * fresh[c];
  overwrite(running, tensor_of(values, running));
}

std::shared_ptr<Communicator> split_off(Communicator& comm) {
  return std::make_shared<Communicator>(comm.split(0, comm.rank()));
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(::torch::nn::BatchNormOptions options_, Communicator& comm)
    : SyncBatchNormImpl(std::move(options_), split_off(comm)) {}

SyncBatchNormImpl::SyncBatchNormImpl(::torch::nn::BatchNormOptions options_, std::shared_ptr<Communicator> shared)
    : options(std::move(options_)),
      comm_(std::move(shared)) {
  GRADSYNC_CHECK(comm_ && *comm_);
  reset();
}

void SyncBatchNormImpl::reset() {
  const std::int64_t features = options.num_features();
  weight = register_parameter("weight", options.affine() ? ::torch::ones({features}) : Tensor(), options.affine());
  bias = register_parameter("bias", options.affine() ? ::torch::zeros({features}) : Tensor(), options.affine());
  const bool tracks = options.track_running_stats();
  running_mean = register_buffer("running_mean", tracks ? ::torch::zeros({features}) : Tensor());
  running_var = register_buffer("running_var", tracks ? ::torch::ones({features}) : Tensor());
  num_batches_tracked = register_buffer("num_batches_tracked", tracks ? ::torch::tensor(0, ::torch::kInt64) : Tensor());
}

void SyncBatchNormImpl::reset_running_stats() {
  if (!running_mean.defined()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "gradsync::torch::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum().has_value()) stream << *options.momentum();
  else stream << "None";
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats()
         << ", ranks=" << comm_->size() << ")";
}

Tensor SyncBatchNormImpl::forward(const Tensor& input) {
  check_input(input, options.num_features());
  if (!is_training())
    return ::torch::batch_norm(input, weight, bias, running_mean, running_var, !running_mean.defined(), 0.0,
                               options.eps(), false);
  if (input.scalar_type() == ::torch::kFloat32 || input.scalar_type() == ::torch::kFloat64) return synchronised(input);
  return synchronised(input.to(::torch::kFloat32)).to(input.scalar_type());
}

Tensor SyncBatchNormImpl::synchronised(const Tensor& input) {
  auto pass = c10::make_intrusive<Pass>();
  pass->comm = comm_;
  pass->layout = layout_of(input);
  pass->epsilon = options.eps();
  pass->affine = weight.defined();
  const Tensor none = pass->affine ? Tensor() : ::torch::empty({0});  // libtorch 1.13 takes no undefined arguments
  Tensor output = Normalise::apply(input, pass->affine ? weight : none, pass->affine ? bias : none, pass);
  if (!running_mean.defined()) return output;
  const std::int64_t batches = num_batches_tracked.item<std::int64_t>() + 1;
  overwrite(num_batches_tracked, ::torch::tensor(batches, ::torch::kInt64));
  const double factor = options.momentum().has_value() ? *options.momentum() : 1.0 / static_cast<double>(batches);
  const BatchStatistics& batch = pass->statistics;
  std::vector<double> unbiased = batch.variance;
  for (double& variance : unbiased) variance *= batch.count / (batch.count - 1);
  blend(running_mean, factor, batch.mean);
  blend(running_var, factor, unbiased);
  return output;
}

// Reaches the registered parameters of a module that replaces another.
struct SyncBatchNormConversion {
  template <class BatchNorm>
  static std::shared_ptr<SyncBatchNormImpl> convert(const BatchNorm& from, const std::shared_ptr<Communicator>& comm) {
    auto to = std::make_shared<SyncBatchNormImpl>(from.options, comm);
    if (from.weight.defined()) {
      to->parameters_["weight"] = to->weight = from.weight;
      to->parameters_["bias"] = to->bias = from.bias;
    }
    if (from.running_mean.defined()) {
      to->to(from.running_mean.scalar_type());
      overwrite(to->running_mean, from.running_mean);
      overwrite(to->running_var, from.running_var);
      overwrite(to->num_batches_tracked, from.num_batches_tracked);
    }
    to->train(from.is_training());
    return to;
  }

  static std::shared_ptr<SyncBatchNormImpl> converted(const ::torch::nn::Module& module,
                                                      const std::shared_ptr<Communicator>& comm) {
    if (const auto* norm = module.as<::torch::nn::BatchNorm1dImpl>()) return convert(*norm, comm);
    if (const auto* norm = module.as<::torch::nn::BatchNorm2dImpl>()) return convert(*norm, comm);
    if (const auto* norm = module.as<::torch::nn::BatchNorm3dImpl>()) return convert(*norm, comm);
    return nullptr;
  }
};

namespace {

bool is_batch_norm(const ::torch::nn::Module& module) {
  return module.as<::torch::nn::BatchNorm1dImpl>() != nullptr || module.as<::torch::nn::BatchNorm2dImpl>() != nullptr ||
         module.as<::torch::nn::BatchNorm3dImpl>() != nullptr;
}

void require_convertible(const ::torch::nn::Module& module, const std::string& path) {
  const bool sequential = module.as<::torch::nn::SequentialImpl>() != nullptr;
  for (const auto& child : module.named_children()) {
    const std::string name = path.empty() ? child.key() : path + "." + child.key();
    if (is_batch_norm(*child.value()) && !sequential)
      throw Error(failure(ErrorCode::unsupported,
                          "{} is a batch norm that its parent calls itself: declare it as SyncBatchNorm there", name));
    require_convertible(*child.value(), name);
  }
}

std::size_t convert_children(::torch::nn::Module& module, const std::shared_ptr<Communicator>& comm) {
  std::size_t converted = 0;
  for (const auto& child : module.children()) converted += convert_children(*child, comm);
  auto* const sequential = module.as<::torch::nn::SequentialImpl>();
  if (sequential == nullptr) return converted;
  auto element = sequential->begin();
  for (const auto& child : sequential->named_children()) {
    if (element == sequential->end()) break;  // a child that somebody registered besides
    if (const auto replacement = SyncBatchNormConversion::converted(*child.value(), comm)) {
      *element = ::torch::nn::AnyModule(replacement);
      sequential->replace_module(child.key(), replacement);
      ++converted;
    }
    ++element;
  }
  return converted;
}

}  // namespace

std::size_t convert_sync_batch_norm(::torch::nn::Module& module, Communicator& comm) {
  require_convertible(module, "");
  return convert_children(module, split_off(comm));
}

}  // namespace gradsync::torch
