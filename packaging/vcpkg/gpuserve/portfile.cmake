# An overlay port: vcpkg install gpuserve --overlay-ports=packaging/vcpkg
#
# It builds the checkout that it lies in. A port of a registry replaces the first line by
# vcpkg_from_github with the SHA512 of the release's tarball.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

set(http disabled)
set(tool disabled)
if("http" IN_LIST FEATURES)
  set(http enabled)
endif()
if("tool" IN_LIST FEATURES)
  set(tool enabled)
endif()

vcpkg_configure_meson(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -Dtests=disabled -Dcuda=disabled -Donednn=disabled -Dhttp=${http} -Dcli=${tool} -Dstatic_library=true
)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_cmake_config_fixup(PACKAGE_NAME gpuserve CONFIG_PATH lib/cmake/gpuserve)
if("tool" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES gpuserve AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
