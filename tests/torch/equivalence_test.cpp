// Replicas against one process with the whole batch.
#include <gtest/gtest.h>

#include <cmath>

#include "gradsync/torch/sync_batch_norm.hpp"
#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::torch::DistributedDataParallel;
using gradsync::torch::SyncBatchNorm;

constexpr int kSteps = 50;
constexpr std::int64_t kBatch = 12;  // divided by 1, 2, 3 and 4

struct Data {
  Tensor x, y;
};

// `Norm` is made by a function, so that the same network has plain or synchronised norms.
template <class Norm>
struct CnnImpl : torch::nn::Module {
  explicit CnnImpl(const std::function<Norm(std::int64_t)>& make_norm) {
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).bias(false)));
    norm1 = register_module("norm1", make_norm(4));
    second = register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).stride(2)));
    norm2 = register_module("norm2", make_norm(6));
    last = register_module("last", torch::nn::Linear(6, 3));
  }
  Tensor forward(const Tensor& x) {
    const Tensor a = torch::tanh(norm1(first(x)));
    return last(torch::tanh(norm2(second(a))).mean({2, 3}));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  Norm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear last{nullptr};
};
using PlainCnn = CnnImpl<torch::nn::BatchNorm2d>;
using SyncCnn = CnnImpl<SyncBatchNorm>;

Data images(int step) {
  return {noise(static_cast<std::uint64_t>(step), {kBatch, 1, 9, 9}),
          noise(1000 + static_cast<std::uint64_t>(step), {kBatch, 3})};
}
Data vectors(int step) {
  return {noise(static_cast<std::uint64_t>(step), {kBatch, 7}),
          noise(1000 + static_cast<std::uint64_t>(step), {kBatch, 3})};
}

template <class Module>
std::vector<Tensor> trained_alone(Module& net, const std::function<Data(int)>& data) {
  torch::optim::SGD optimizer(net.parameters(), 0.05);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Data batch = data(step);
    torch::mse_loss(net.forward(batch.x), batch.y).backward();
    optimizer.step();
  }
  return parameters_of(net);
}

template <class Module>
void train(DistributedDataParallel<Module>& model, torch::optim::Optimizer& optimizer, Communicator& comm,
           const std::function<Data(int)>& data) {
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Data batch = data(step);
    torch::mse_loss(model(share(batch.x, comm)), share(batch.y, comm)).backward();
    model.step(optimizer);
  }
  model.synchronize();
}

TEST(Equivalence, OfAPerceptronIn64Bits) {
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    auto alone = std::make_shared<MlpImpl>(7, 10, 3);
    alone->to(torch::kFloat64);
    auto start = std::make_shared<MlpImpl>(7, 10, 3);
    start->to(torch::kFloat64);
    copy_state(*alone, *start);
    const std::vector<Tensor> expected = trained_alone(*alone, vectors);
    on_ranks(ranks, [&](Communicator& comm) {
      auto net = std::make_shared<MlpImpl>(7, 10, 3);
      net->to(torch::kFloat64);
      if (comm.rank() == 0) copy_state(*start, *net);  // the others get it by wrapping
      DistributedDataParallel model(net, comm);
      torch::optim::SGD optimizer(net->parameters(), 0.05);
      train(model, optimizer, comm, vectors);
      EXPECT_LE(largest_difference(parameters_of(*net), expected), 1e-12) << ranks << " ranks";
      EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
    });
  }
}

TEST(Equivalence, OfAConvolutionalNetworkWithSyncBatchNormIn64Bits) {
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    PlainCnn alone([](std::int64_t c) { return torch::nn::BatchNorm2d(c); });
    PlainCnn start([](std::int64_t c) { return torch::nn::BatchNorm2d(c); });
    alone.to(torch::kFloat64);
    start.to(torch::kFloat64);
    copy_state(alone, start);
    const std::vector<Tensor> expected = trained_alone(alone, images);
    on_ranks(ranks, [&](Communicator& comm) {
      auto net = std::make_shared<SyncCnn>(
          [&](std::int64_t c) { return SyncBatchNorm(torch::nn::BatchNormOptions(c), comm); });
      net->to(torch::kFloat64);
      if (comm.rank() == 0) copy_state(start, *net);
      DistributedDataParallel model(net, comm);
      torch::optim::SGD optimizer(net->parameters(), 0.05);
      train(model, optimizer, comm, images);
      EXPECT_LE(largest_difference(parameters_of(*net), expected), 1e-12) << ranks << " ranks";
      EXPECT_LE(largest_difference(net->buffers(), alone.buffers()), 1e-12);
      EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
    });
  }
}

struct LineImpl : torch::nn::Module {
  explicit LineImpl(std::int64_t in, torch::ScalarType type) {
    weight = register_parameter("weight", torch::zeros({in, 1}, type));
  }
  Tensor forward(const Tensor& x) { return x.matmul(weight); }
  Tensor weight;
};

// Least squares in f32 with gradient descent, w += -r * g with g = 2/n X'(Xw - y). With u = 2^-24 and gamma(k) =
// k*u/(1 - k*u) (Higham, "Accuracy and Stability of Numerical Algorithms", section 3), whatever the order of the sums,
// the computed g is off by at most gamma(d + n + N + 6) * 2/n |X|'(|X||w| + |y|): d terms of a product, n of the sum
// over samples in whatever parts, N over ranks, and 6 roundings of scales and differences; the update adds u * (|w| +
// 2r|g|). As I - rH does not stretch (r times the largest eigenvalue of H is below 2), the errors of steps add up. Two
// runs differ by the sum of both their errors.
double least_squares_bound(int ranks, double rate, std::int64_t dimensions, const std::function<Data(int)>& data) {
  Tensor w = torch::zeros({dimensions, 1}, torch::kFloat64);
  double bound = 0;
  const double u = 0x1.0p-24, k = static_cast<double>(dimensions + kBatch + ranks + 6), gamma = k * u / (1 - k * u);
  for (int step = 0; step < kSteps; ++step) {
    const Data batch = data(step);
    const Tensor g = 2.0 / kBatch * batch.x.t().matmul(batch.x.matmul(w) - batch.y);
    const Tensor size = 2.0 / kBatch * batch.x.abs().t().matmul(batch.x.abs().matmul(w.abs()) + batch.y.abs());
    const Tensor eigenvalues = std::get<0>(torch::linalg_eigh(2.0 / kBatch * batch.x.t().matmul(batch.x)));
    EXPECT_LT(rate * eigenvalues.max().item<double>(), 2);
    bound += (gamma * rate * size + u * (w.abs() + 2 * rate * g.abs())).norm().item<double>();
    w = w - rate * g;
  }
  return 2 * 1.01 * bound;  // second-order terms: far below one hundredth
}

TEST(Equivalence, Of32BitsIsWithinItsRounding) {
  const double rate = 0.05;
  const auto data = [](int step) {
    const Data wide = vectors(step);
    return Data{wide.x.to(torch::kFloat32).to(torch::kFloat64),
                wide.y.narrow(1, 0, 1).to(torch::kFloat32).to(torch::kFloat64)};
  };
  const auto narrow = [&](int step) {
    const Data wide = data(step);
    return Data{wide.x.to(torch::kFloat32), wide.y.to(torch::kFloat32)};
  };
  const auto run = [&](const std::function<Tensor(const Tensor&)>& forward,
                       const std::function<Tensor(const Tensor&)>& part, torch::optim::Optimizer& optimizer) {
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const Data batch = narrow(step);
      torch::mse_loss(forward(part(batch.x)), part(batch.y)).backward();
      optimizer.step();
    }
  };
  LineImpl alone(7, torch::kFloat32);
  torch::optim::SGD optimizer(alone.parameters(), rate);
  run([&](const Tensor& x) { return alone.forward(x); }, [](const Tensor& t) { return t; }, optimizer);
  for (const int ranks : {2, 3, 4}) {
    const double bound = least_squares_bound(ranks, rate, 7, data);
    on_ranks(static_cast<std::uint32_t>(ranks), [&](Communicator& comm) {
      auto net = std::make_shared<LineImpl>(7, torch::kFloat32);
      DistributedDataParallel model(net, comm);
      torch::optim::SGD own(net->parameters(), rate);
      run([&](const Tensor& x) { return model(x); }, [&](const Tensor& t) { return share(t, comm); }, own);
      EXPECT_LE(largest_difference({net->weight}, {alone.weight}), bound) << ranks << " ranks";
      EXPECT_GT(net->weight.abs().max().item<double>(), 100 * bound);  // the bound says something
    });
  }
}

TEST(Equivalence, OfAccumulatedGradients) {
  constexpr int parts = 3;
  auto start = std::make_shared<MlpImpl>(7, 10, 3);
  start->to(torch::kFloat64);
  const Data batch = vectors(1);
  auto alone = std::make_shared<MlpImpl>(7, 10, 3);
  alone->to(torch::kFloat64);
  copy_state(*start, *alone);
  torch::mse_loss(alone->forward(batch.x), batch.y).backward();
  const std::vector<Tensor> expected = gradients_of(*alone);
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(7, 10, 3);
    net->to(torch::kFloat64);
    copy_state(*start, *net);
    DistributedDataParallel model(net, comm);
    const auto x = share(batch.x, comm).chunk(parts), y = share(batch.y, comm).chunk(parts);
    for (int round = 0; round < 3; ++round) {  // undefined, kept and zeroed gradients to begin with
      if (round == 1) model.zero_grad();
      if (round == 2)
        for (const Tensor& parameter : net->parameters()) parameter.mutable_grad().zero_();
      {
        const auto local = model.no_sync();
        for (int part = 0; part + 1 < parts; ++part) (torch::mse_loss(model(x[part]), y[part]) / parts).backward();
      }
      (torch::mse_loss(model(x[parts - 1]), y[parts - 1]) / parts).backward();
      EXPECT_LE(largest_difference(gradients_of(*net), expected), 1e-14) << "round " << round;
      EXPECT_TRUE(same_bits_on_all_ranks(comm, gradients_of(*net)));
    }
  });
}

TEST(Equivalence, OfBackwardTwiceWithoutZeroing) {
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(7, 10, 3);
    net->to(torch::kFloat64);
    DistributedDataParallel model(net, comm);
    const Data batch = vectors(2);
    const Tensor loss = torch::mse_loss(model(share(batch.x, comm)), share(batch.y, comm));
    loss.backward({}, true);
    const std::vector<Tensor> once = gradients_of(*net);
    loss.backward();  // the mean of (mean + own) is twice the mean
    std::vector<Tensor> twice;
    for (const Tensor& gradient : once) twice.push_back(2 * gradient);
    EXPECT_LE(largest_difference(gradients_of(*net), twice), 1e-15);
  });
}

TEST(Equivalence, OfAdam) {
  auto start = std::make_shared<MlpImpl>(7, 10, 3);
  start->to(torch::kFloat64);
  auto alone = std::make_shared<MlpImpl>(7, 10, 3);
  alone->to(torch::kFloat64);
  copy_state(*start, *alone);
  torch::optim::Adam adam(alone->parameters(), torch::optim::AdamOptions(1e-2).eps(1e-3));
  for (int step = 0; step < kSteps; ++step) {
    adam.zero_grad();
    torch::mse_loss(alone->forward(vectors(step).x), vectors(step).y).backward();
    adam.step();
  }
  on_ranks(3, [&](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(7, 10, 3);
    net->to(torch::kFloat64);
    if (comm.rank() == 0) copy_state(*start, *net);
    DistributedDataParallel model(net, comm);
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-2).eps(1e-3));
    train(model, optimizer, comm, vectors);
    EXPECT_LE(largest_difference(parameters_of(*net), parameters_of(*alone)), 1e-11);
    EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
  });
}

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    wide = register_module("wide", torch::nn::Linear(5, 6));
    narrow = register_module("narrow", torch::nn::Linear(6, 4));
    half = register_parameter("half", noise(4, {4}, torch::kFloat16));
    image = register_module("image", torch::nn::Conv2d(2, 3, 3));
    wide->to(torch::kFloat64);
    narrow->to(torch::kBFloat16);
    image->weight.set_data(image->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  Tensor forward(const Tensor& x) {
    const Tensor a = narrow(wide(x).to(torch::kBFloat16)).to(torch::kFloat32) * half.to(torch::kFloat32);
    const Tensor picture = x.to(torch::kFloat32).reshape({-1, 1, 5, 1}).expand({-1, 2, 5, 5});
    return a.sum() + image(picture.contiguous(torch::MemoryFormat::ChannelsLast)).pow(2).sum() + bias_again(x);
  }
  Tensor bias_again(const Tensor& x) { return wide->bias.sum() * x.mean(); }
  torch::nn::Linear wide{nullptr}, narrow{nullptr};
  torch::nn::Conv2d image{nullptr};
  Tensor half;
};

TEST(Equivalence, OfMixedTypesAndStridedWeights) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<MixedImpl>();
    DistributedDataParallel model(net, comm);
    MixedImpl alone;
    copy_state(*net, alone);
    const Tensor x =
        noise(7, {4, 5});  // the same on both ranks: the mean of two equal gradients is that gradient, to the bit
    model(x).backward();
    alone.forward(x).backward();
    EXPECT_TRUE(same_bits(gradients_of(*net), gradients_of(alone)));
    for (const Tensor& parameter : net->parameters())
      EXPECT_EQ(parameter.grad().scalar_type(), parameter.scalar_type());
  });
}

struct LinearThatTies : torch::nn::LinearImpl {
  using torch::nn::LinearImpl::LinearImpl;
  void tie(const Tensor& to) { parameters_["weight"] = weight = to; }
};
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    in = register_module("in", std::make_shared<LinearThatTies>(4, 4));
    out = register_module("out", std::make_shared<LinearThatTies>(4, 4));
    out->tie(in->weight);
    frozen = register_parameter("frozen", noise(5, {4}), false);
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) { return out->forward(torch::tanh(in->forward(x))) * frozen; }
  std::shared_ptr<LinearThatTies> in, out;
  Tensor frozen;
};

TEST(Equivalence, OfTiedAndFrozenParameters) {
  auto alone = std::make_shared<TiedImpl>();
  const Tensor x = noise(1, {6, 4});
  on_ranks(3, [&](Communicator& comm) {
    auto net = std::make_shared<TiedImpl>();
    if (comm.rank() == 0) copy_state(*alone, *net);
    else net->frozen.fill_(7);
    DistributedDataParallel model(net, comm);
    EXPECT_EQ(model.sync().parameters().size(), 3u);  // one weight, two biases
    EXPECT_TRUE(same_bits({net->frozen}, {alone->frozen}));
    model(share(x, comm)).sum().backward();
    TiedImpl whole;
    copy_state(*net, whole);
    (whole.forward(x).sum() / 3).backward();
    EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(whole)), 1e-14);
  });
}

}  // namespace
}  // namespace gradsync_test
