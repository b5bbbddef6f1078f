#include "support/digest.hpp"

#include <openssl/evp.h>

#include "base/status.hpp"

namespace gradsync::test {

struct Digest::State {
  EVP_MD_CTX* context = nullptr;
  ~State() { EVP_MD_CTX_free(context); }
};

Digest::Digest() : state_(std::make_unique<State>()) {
  state_->context = EVP_MD_CTX_new();
  GRADSYNC_CHECK(state_->context && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Digest::~Digest() = default;

void Digest::add(std::span<const std::byte> bytes) {
  GRADSYNC_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

Sha256 Digest::take() {
  Sha256 digest{};
  GRADSYNC_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
  GRADSYNC_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
  return digest;
}

std::string hex(const Sha256& digest) {
  std::string text;
  for (std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace gradsync::test
