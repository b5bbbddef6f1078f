#include "support/fingerprint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace training {
namespace {

constexpr std::size_t digest_bytes = 32;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
      throw std::runtime_error("libcrypto has no SHA-256");
  }
  void add(const void* data, std::size_t bytes) {
    if (EVP_DigestUpdate(context_.get(), data, bytes) != 1) throw std::runtime_error("libcrypto: SHA-256 failed");
  }
  std::string hexadecimal() {
    std::array<unsigned char, digest_bytes> digest{};
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) != 1)
      throw std::runtime_error("libcrypto: SHA-256 failed");
    return fmt::format("{:02x}", fmt::join(digest, ""));
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

void add(Sha256& hash, const std::string& name, const torch::Tensor& tensor) {
  const auto values = tensor.detach().contiguous();
  const auto head =
      fmt::format("{} {} ({})\n", name, torch::toString(values.scalar_type()), fmt::join(values.sizes().vec(), ", "));
  hash.add(head.data(), head.size());
  hash.add(values.data_ptr(), values.nbytes());
}

}  // namespace

std::string fingerprint(const torch::nn::Module& module) {
  Sha256 hash;
  for (const auto& item : module.named_parameters()) add(hash, item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(hash, item.key(), item.value());
  return hash.hexadecimal();
}

bool ReplicaCheck::identical() const {
  for (const auto& other : fingerprints)
    if (other != fingerprints.front()) return false;
  return true;
}

std::string ReplicaCheck::describe() const {
  for (std::size_t rank = 1; rank < fingerprints.size(); ++rank)
    if (fingerprints[rank] != fingerprints[0])
      return fmt::format("replicas identical: no (rank {} has {}, rank 0 {})", rank, fingerprints[rank],
                         fingerprints[0]);
  return fmt::format("replicas identical: yes ({})", fingerprints.at(0));
}

ReplicaCheck compare_replicas(const torch::nn::Module& module, gradsync::Communicator& comm) {
  const std::string mine = fingerprint(module);
  const std::vector<std::uint8_t> sent(mine.begin(), mine.end());
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(gradsync::view(sent), gradsync::view(all));
  ReplicaCheck check;
  for (std::size_t begin = 0; begin < all.size(); begin += mine.size())
    check.fingerprints.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                    all.begin() + static_cast<std::ptrdiff_t>(begin + mine.size()));
  return check;
}

}  // namespace training
