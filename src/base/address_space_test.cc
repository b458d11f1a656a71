#include "base/address_space.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace neve {
namespace {

constexpr std::size_t kHuge = AddressSpace::kHugePage;

std::uint8_t byte_at(std::size_t i) { return static_cast<std::uint8_t>(i * 131 + i / 4096 + 1); }

TEST(AddressSpace, GatheringAndReleasingKeepWhatIsInUse) {
  constexpr std::size_t kBytes = 7 * kHuge + 12345;
  AddressSpace space = std::move(AddressSpace::reserve(kBytes)).value();
  ASSERT_EQ(space.size(), kBytes);
  std::uint8_t* data = space.data();
  for (std::size_t i = 0; i < kBytes; ++i) data[i] = byte_at(i);
  space.gather(kHuge - 1);         // nothing whole
  space.gather(kBytes);            // the most of one call
  space.gather(kBytes);            // the rest
  space.gather(kBytes);            // nothing new
  space.release(3 * kHuge, 8192);  // splits one
  space.gather(3 * kHuge);         // the hole ends what is in use
  for (std::size_t i = 0; i < kBytes; ++i) {
    const bool hole = i >= 3 * kHuge && i < 3 * kHuge + 8192;
    ASSERT_EQ(data[i], hole ? 0 : byte_at(i)) << i;
  }
  std::memset(data + 3 * kHuge, 7, 8192);
  space.gather(kBytes);
  ASSERT_EQ(data[3 * kHuge + 8191], 7);
  ASSERT_EQ(data[3 * kHuge + 8192], byte_at(3 * kHuge + 8192));
  AddressSpace moved = std::move(space);
  EXPECT_EQ(space.data(), nullptr);  // NOLINT(bugprone-use-after-move): says what is left
  EXPECT_EQ(moved.data(), data);
  moved.release(0, kBytes);
  for (std::size_t i = 0; i < kBytes / 4096; ++i) ASSERT_EQ(data[i * 4096], 0);
}

TEST(AddressSpace, NothingAndTooMuch) {
  EXPECT_EQ(AddressSpace::reserve(0)->data(), nullptr);
  AddressSpace none;
  none.gather(kHuge);
  none.release(0, kHuge);
  const Result<AddressSpace> all = AddressSpace::reserve(~std::size_t{0} / 2);
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.status().code(), Code::kExhausted);
}

}  // namespace
}  // namespace neve
