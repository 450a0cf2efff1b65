package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"steadyvm/k8s/internal/real"
	"steadyvm/k8s/internal/webhook"
)

const claim = `{"kind":%q,"spec":%s}`

func spec(request, parameters string) string {
	return `{"devices":{"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu"}},{"name":"cpu",` + request + `}],"config":[` +
		`{"opaque":{"driver":"gpu.example.com","parameters":{}}},{"requests":["cpu"],"opaque":{"driver":"cpu.steadyvm.io","parameters":` +
		`{"apiVersion":"steadyvm.io/v1alpha1","kind":"Reservation",` + parameters + `}}}]}}`
}

func ask(t *testing.T, kind, object string) *admissionv1.AdmissionResponse {
	t.Helper()
	program, _ := real.Host(t)
	review, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "review", Kind: metav1.GroupVersionKind{Kind: kind}, Object: runtime.RawExtension{Raw: []byte(object)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	webhook.Handler{Planner: program}.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/claims", bytes.NewReader(review)))
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v", recorder.Body, err)
	}
	if answer.Response.UID != "review" {
		t.Errorf("the answer is to %q", answer.Response.UID)
	}
	return answer.Response
}

const (
	plain = `"exactly":{"deviceClassName":"steadyvm-cpu"}`
	four  = `"budgetMicroseconds":4000,"periodMicroseconds":10000`
)

func TestTheAmountIsWrittenIntoClaimsAndTemplates(t *testing.T) {
	whole := spec(plain, four)
	for kind, object := range map[string]string{
		"/spec":      fmt.Sprintf(claim, "ResourceClaim", whole),
		"/spec/spec": fmt.Sprintf(claim, "ResourceClaimTemplate", `{"spec":`+whole+`}`),
	} {
		name := "ResourceClaim"
		if kind == "/spec/spec" {
			name = "ResourceClaimTemplate"
		}
		answer := ask(t, name, object)
		expected := `[{"op":"add","path":"` + kind + `/devices/requests/1/exactly/capacity","value":{"requests":{"cpuPpm":"400k"}}}]`
		if !answer.Allowed || string(answer.Patch) != expected {
			t.Errorf("%s: %s, %+v", kind, answer.Patch, answer.Result)
		}
	}
}

func TestWhatIsEnoughStaysAndOthersClaimsToo(t *testing.T) {
	for _, object := range []string{
		fmt.Sprintf(claim, "ResourceClaim", spec(`"exactly":{"capacity":{"requests":{"cpuPpm":"500k"}}}`, four)),
		`{"kind":"ResourceClaim","spec":{"devices":{"requests":[{"name":"gpu"}]}}}`,
	} {
		if answer := ask(t, "ResourceClaim", object); !answer.Allowed || answer.Patch != nil {
			t.Errorf("%s: %+v", object, answer)
		}
	}
}

func TestWrongClaimsAreRefusedWithTheReason(t *testing.T) {
	for words, whole := range map[string]string{
		"needs 400000":         spec(`"exactly":{"capacity":{"requests":{"cpuPpm":"300k"}}}`, four),
		"write exactly":        spec(`"firstAvailable":[]`, four),
		"unknown field":        spec(plain, four+`,"budgte":1`),
		"more than its period": spec(plain, `"budgetMicroseconds":11000,"periodMicroseconds":10000`),
		"count 2":              spec(`"exactly":{"count":2}`, `"tasks":[{"executionMicroseconds":1,"periodMicroseconds":9}]`),
	} {
		answer := ask(t, "ResourceClaim", fmt.Sprintf(claim, "ResourceClaim", whole))
		if answer.Allowed || answer.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Result.Message, words) {
			t.Errorf("%q: %+v", words, answer.Result)
		}
	}
}

func TestWhatIsNoReviewIsABadRequest(t *testing.T) {
	for _, body := range []string{"", "{}", "[", `{"request":1}`} {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, "/claims", strings.NewReader(body))
		webhook.Handler{}.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", body, recorder.Code)
		}
	}
}
