// Package webhook writes into a claim what its reservation takes of a CPU, or refuses it in the analysis' own words.
//
// The scheduler needs the amount before a pod has a node, and it is in the claim's specification, which nobody may change
// later. So it is written as the claim is made.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/reservation"
)

// The API server's own bound of a request is 3 MiB.
const largestReview = 4 << 20

// Handler answers reviews of claims and their templates.
type Handler struct{ Planner reservation.Planner }

// ServeHTTP answers one.
func (h Handler) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(io.LimitReader(request.Body, largestReview)).Decode(&review); err != nil || review.Request == nil {
		http.Error(writer, "this is no AdmissionReview", http.StatusBadRequest)
		return
	}
	review.Response = h.answer(request.Context(), review.Request)
	review.Response.UID = review.Request.UID
	review.Request = nil
	writer.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(writer).Encode(review); err != nil {
		klog.FromContext(request.Context()).Error(err, "The answer was not taken")
	}
}

func (h Handler) answer(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	patches, warnings, err := h.review(ctx, request.Kind.Kind, request.Object.Raw)
	if err != nil {
		reason, code := metav1.StatusReasonInvalid, int32(http.StatusUnprocessableEntity)
		if refusal := new(engine.Refusal); !errors.As(err, &refusal) {
			reason, code = metav1.StatusReasonInternalError, http.StatusInternalServerError
		}
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error(), Reason: reason, Code: code}}
	}
	response := &admissionv1.AdmissionResponse{Allowed: true, Warnings: warnings}
	if len(patches) > 0 {
		text, err := json.Marshal(patches)
		if err != nil {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
		}
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = text, &kind
	}
	return response
}

type patch struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     any    `json:"value"`
}

func (h Handler) review(ctx context.Context, kind string, raw []byte) ([]patch, []string, error) {
	var spec resourceapi.ResourceClaimSpec
	path := "/spec"
	if kind == "ResourceClaimTemplate" {
		var template resourceapi.ResourceClaimTemplate
		if err := json.Unmarshal(raw, &template); err != nil {
			return nil, nil, refuse("%v", err)
		}
		spec, path = template.Spec.Spec, "/spec/spec"
	} else {
		var claim resourceapi.ResourceClaim
		if err := json.Unmarshal(raw, &claim); err != nil {
			return nil, nil, refuse("%v", err)
		}
		spec = claim.Spec
	}
	return h.patches(ctx, path, spec)
}

func (h Handler) patches(ctx context.Context, path string, spec resourceapi.ResourceClaimSpec) ([]patch, []string, error) {
	var patches []patch
	var warnings []string
	for number, config := range spec.Devices.Config {
		if config.Opaque == nil || config.Opaque.Driver != reservation.Driver {
			continue
		}
		asked, err := reservation.Parse(config.Opaque.Parameters.Raw)
		if err != nil {
			return nil, nil, refuse("spec.devices.config[%d].opaque.parameters: %v", number, err)
		}
		for place, request := range spec.Devices.Requests {
			if !reservation.Applies(config.Requests, request.Name) {
				continue
			}
			if request.Exactly == nil {
				return nil, nil, refuse("request %q: alternatives (firstAvailable) have no reservation of ours; write exactly", request.Name)
			}
			where := fmt.Sprintf("%s/devices/requests/%d/exactly/capacity", path, place)
			one, notes, err := h.patch(ctx, where, asked, request)
			if err != nil {
				return nil, nil, err
			}
			patches, warnings = append(patches, one...), append(warnings, notes...)
		}
	}
	return patches, warnings, nil
}

func (h Handler) patch(
	ctx context.Context, path string, asked reservation.Reservation, request resourceapi.DeviceRequest,
) ([]patch, []string, error) {
	vcpus := max(request.Exactly.Count, 1)
	need, err := asked.Need(ctx, h.Planner, request.Name, vcpus)
	if refusal := new(engine.Refusal); errors.As(err, &refusal) {
		return nil, nil, refuse("request %q: %s", request.Name, refusal.Words)
	}
	if err != nil {
		return nil, nil, err
	}
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	if request.Exactly.Capacity != nil {
		for name, quantity := range request.Exactly.Capacity.Requests {
			requests[name] = quantity
		}
	}
	if written, isWritten := requests[reservation.Capacity]; isWritten {
		if written.CmpInt64(need.Ppm) < 0 {
			return nil, nil, refuse("request %q: capacity %s is %s, and the reservation needs %d; leave it out, and it is written for you",
				request.Name, reservation.Capacity, written.String(), need.Ppm)
		}
		return nil, need.Notes, nil
	}
	requests[reservation.Capacity] = *resource.NewQuantity(need.Ppm, resource.DecimalSI)
	return []patch{{Operation: "add", Path: path, Value: resourceapi.CapacityRequirements{Requests: requests}}}, need.Notes, nil
}

func refuse(format string, words ...any) error {
	return &engine.Refusal{Words: fmt.Sprintf(format, words...)}
}
